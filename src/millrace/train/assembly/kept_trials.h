// Results of trials on this machine, kept in the cache folder for later runs, so that each shape is timed only once. With
// --off=kept_trials every run makes its own trials.
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

// Each entry belongs to one kind of machine. The kind consists of the CPU, its code paths, the number of threads and how they
// wait, the cores, and the versions of Millrace, LibTorch and oneDNN; for a run on a GPU also of the card and its driver. If an
// entry can't be read or written, the trial is made. Two runs that end at the same time may lose each other's entries.
class KeptTrials {
 public:
  // Reads `folder`/trials.json; with an empty path nothing is read or kept. `writes`: false for commands that write nothing.
  // `device`: the device on which trials compute.
  KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes, at::Device device = at::kCPU);
  [[nodiscard]] std::optional<Json> find(const std::string& trial) const;
  [[nodiscard]] const Json& all() const noexcept { return mine_; }  // {trial: result}
  void keep(const std::string& trial, Json result);
  void save();  // writes the file if there are new results

 private:
  [[nodiscard]] Json read() const;  // {machine: {trial: result}}
  Fs& fs_;
  std::filesystem::path file_;
  bool writes_;
  std::string machine_;
  Json mine_ = Json::object();
  bool is_new_ = false;
};

// "AMD EPYC, family 26, model 2, stepping 1": the numbers are needed because several generations of CPUs may have the same name.
[[nodiscard]] std::string this_cpu();
// Such as ", on NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.65.06".
[[nodiscard]] std::string this_gpu(const std::string& name, std::pair<int, int> capability, const std::string& driver);

// True if `result` has the form that trials of whole steps keep: {value, reason}.
[[nodiscard]] bool is_verdict(const std::optional<Json>& result);
inline constexpr const char* kOfAnEarlierRun = "; measured by an earlier run with this shape on this machine";

// The name of a trial of whole steps in KeptTrials. It consists of `what` (the subject of the trial), the number format if that
// matters, and a hash of everything that the step depends on. The hash covers the recipe, the shapes of the model's parameters
// and of the batch, and the config without the number format and without sections that no step reads. Results for convolutions
// hold in every number format.
[[nodiscard]] std::string step_trial(std::string_view what, std::string_view recipe, const Json& config,
                                     const torch::nn::Module& model, const Batch& batch);

// find_format() and keep_format() read and write results of number-format trials under step_trial()'s name. "Not faster" depends
// on shapes only and is reused for any data. "Faster" was also checked for accuracy, so it is reused only for the same `values`,
// which name the data and the first weights.
[[nodiscard]] std::optional<Json> find_format(const KeptTrials& kept, const std::string& trial, const Json& values);
void keep_format(KeptTrials& kept, const std::string& trial, const Json& values, const std::string& format,
                 const std::string& reason);

}  // namespace millrace
