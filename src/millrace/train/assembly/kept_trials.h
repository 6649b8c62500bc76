// Results of trials on this machine, kept in the cache folder for later runs, so that a shape is timed once (with
// --off=kept_trials: in each run anew).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/core/batch.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// Entries belong to one kind of machine: CPU, its code paths, threads and how they wait, cores, versions of Millrace, LibTorch
// and oneDNN; for a run on a GPU also its card and driver. An entry that can't be read or written counts as missing, and the
// trial is made instead. Runs that end at the same time may lose each other's entries.
class KeptTrials {
 public:
  // Reads `folder`/trials.json; an empty path keeps nothing. `writes`: false for commands that write nothing. `device`: the
  // device that trials compute on.
  KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes, at::Device device = at::kCPU);
  [[nodiscard]] std::optional<Json> find(const std::string& trial) const;
  [[nodiscard]] const Json& all() const noexcept { return mine_; }  // {trial: result}
  void keep(const std::string& trial, Json result);
  void save();  // if there is anything new to save

 private:
  [[nodiscard]] Json read() const;  // {machine: {trial: result}}
  Fs& fs_;
  std::filesystem::path file_;
  bool writes_;
  std::string machine_;
  Json mine_ = Json::object();
  bool is_new_ = false;
};

// "AMD EPYC, family 26, model 2, stepping 1": one name may stand for several generations of CPUs.
[[nodiscard]] std::string this_cpu();
// ", on NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.65.06".
[[nodiscard]] std::string this_gpu(const std::string& name, std::pair<int, int> capability, const std::string& driver);

// True if `result` is the verdict of a trial of a whole step: {value, reason}.
[[nodiscard]] bool is_verdict(const std::optional<Json>& result);
inline constexpr const char* kOfAnEarlierRun = "; measured by an earlier run of this shape here";

// Names a trial of a whole step by the thing tried, its number format if that matters, and a hash of everything that such a step
// depends on: the recipe, its config without the number format and without sections that no step reads, and the shapes of the
// model's parameters and of the batch. Results for convolutions hold in every number format.
[[nodiscard]] std::string step_trial(std::string_view what, std::string_view recipe, const Json& config,
                                     const torch::nn::Module& model, const Batch& batch);

// Verdicts on the number format of such a step, under step_trial()'s name. "Not faster" depends on shapes only and is reused for
// any data. "Faster" was also checked for accuracy, so it is reused only for the data and first weights that `values` names.
[[nodiscard]] std::optional<Json> find_format(const KeptTrials& kept, const std::string& trial, const Json& values);
void keep_format(KeptTrials& kept, const std::string& trial, const Json& values, const std::string& format,
                 const std::string& reason);

}  // namespace millrace
