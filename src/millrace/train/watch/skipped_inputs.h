// The input of skipped steps, read again at the next log line: which sample holds what no step can use.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/loader.h"
#include "millrace/doctor/evidence.h"

namespace millrace {

// Belongs to the loop's thread. Steps that are not skipped cost nothing.
class SkippedInputs {
 public:
  // `loader` outlives this; a step takes at most `batches_per_step` of its batches.
  SkippedInputs(const data::Loader& loader, std::int64_t batches_per_step)
      : loader_(loader), batches_per_step_(static_cast<double>(batches_per_step)) {}

  // The loop begins after `skipped` skipped steps of earlier processes, with the loader in the state `at`.
  void begin(double skipped, const Json& at);
  [[nodiscard]] bool rose(double skipped) const noexcept { return skipped > skipped_; }
  // Called at a log line, with all steps that were skipped so far. If they rose, reads the batches since the last call again, for
  // at most two seconds or 2 % of the loop's time, and returns a line for each sample with float values that are not finite, the
  // first time that it is met. A field that has such values in more batches than were skipped is passed over: there they mark
  // what is missing. Never throws.
  std::vector<std::string> look(double skipped, const Json& at);
  [[nodiscard]] const doctor::Evidence::SkippedInput& seen() const noexcept { return seen_; }

 private:
  struct Hit;
  [[nodiscard]] std::uint64_t sequence(const Json& at) const;
  void read(std::uint64_t sequence, std::vector<Hit>& hits) const;

  const data::Loader& loader_;
  double batches_per_step_;
  double skipped_ = 0;
  std::uint64_t at_ = 0;          // batches since the run began
  double began_ = 0, spent_ = 0;  // seconds of the steady clock, seconds
  bool missed_ = false;
  std::set<std::pair<std::size_t, std::int64_t>> samples_;
  doctor::Evidence::SkippedInput seen_;
};

}  // namespace millrace
