// What trials measured on this machine, kept in the cache folder for later runs: a shape is timed once (--off=kept_trials: in
// each run anew).
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

// Entries belong to one kind of machine: CPU, its code paths, threads, versions of Millrace and LibTorch. What can't be read or
// written is as if it were not there: a trial is made instead. Runs that end at the same time may lose each other's entries.
class KeptTrials {
 public:
  // Reads `folder`/trials.json; an empty path keeps nothing. `writes`: false for runs that only look.
  KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes);
  [[nodiscard]] std::optional<Json> find(const std::string& trial) const;
  [[nodiscard]] const Json& all() const noexcept { return mine_; }  // {trial: result}
  void keep(const std::string& trial, Json result);
  void save();  // if there is anything new

 private:
  [[nodiscard]] Json read() const;  // {machine: {trial: result}}
  Fs& fs_;
  std::filesystem::path file_;
  bool writes_;
  std::string machine_;
  Json mine_ = Json::object();
  bool is_new_ = false;
};

// A verdict of a trial of a whole step is {value, reason}.
[[nodiscard]] bool is_verdict(const std::optional<Json>& result);
inline constexpr const char* kOfAnEarlierRun = "; measured by an earlier run of this shape here";

// The name of a trial of a whole step: what is tried, and a hash of all that such a step depends on, which is the recipe, its
// config but for the sections that no step reads, the model's parameters and the batch, each by shape.
[[nodiscard]] std::string step_trial(std::string_view what, std::string_view recipe, const Json& config,
                                     const torch::nn::Module& model, const Batch& batch);

}  // namespace millrace
