// Two toy recipes that exercise the parts of the frame that the shipped recipes need, and a short way to run them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/train/run/run.h"
#include "millrace/train/run/session.h"

namespace millrace::toys {

// A generator and a discriminator on 2-D points: two objectives in one step, each with its own optimiser. The data is a shifted
// Gaussian; the generator learns its mean.
[[nodiscard]] Entry adversarial();

// Regression over three data sets of different shapes: grouped batches, a shared trunk and one head each. toy.bad_from and
// toy.bad_steps make the loss of those steps NaN.
[[nodiscard]] Entry grouped_regression();

// Called by grouped_regression at named points ("read", "loss", "measure", "validation", "update", "state", "end"), so that a
// test can raise a signal there.
extern std::function<void(const char* point)> at_point;

// Resolves `overrides` (dotted keys) over the recipe's defaults and runs it quietly in `folder` ("" = no files). Unless the
// overrides say otherwise, there is no rehearsal and no trial of kernels: planted faults must meet a step.
RunOutcome run(const Entry& entry, const std::filesystem::path& folder, const Json& overrides, bool fresh = false,
               Fs* fs = nullptr);

// The lines of one kind in a run's log.jsonl, without a line that a crash cut short.
std::vector<Json> log_of(const std::filesystem::path& run, const std::string& kind);

// A fresh temporary folder, in memory where possible; removed at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace millrace::toys
