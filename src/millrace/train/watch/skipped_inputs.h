// Finds samples with values that are not finite. At the log line after a skipped step, reads the step's input again, prepares it
// as the recipe does, and names the samples.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/loader.h"
#include "millrace/doctor/evidence.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {

// Belongs to the loop's thread. Costs nothing unless a step is skipped.
class SkippedInputs {
 public:
  // `loader` must outlive this object. `batches_per_step`: the most batches that a step takes from the loader.
  SkippedInputs(const data::Loader& loader, std::int64_t batches_per_step)
      : loader_(loader), batches_per_step_(static_cast<double>(batches_per_step)) {}

  // Called before the first step. `skipped`: number of steps that earlier processes of the run skipped. `at`: the loader's state.
  void begin(double skipped, const Json& at);
  [[nodiscard]] bool rose(double skipped) const noexcept { return skipped > skipped_; }
  // Called at a log line. `skipped`: number of all steps skipped so far. If this number rose since the last call, reads the
  // batches since then again. If the values of a batch are finite as read, also calls Recipe::prepare for it as `context` says.
  // All calls together take at most two seconds or 2 % of the loop's time, whichever is longer. Returns a line for each sample
  // that has float values that are not finite, before or after prepare(), and was not reported before. If a field has such
  // values in more batches than the skipped steps used, the values mark missing data, and the field is left out. Never throws.
  std::vector<std::string> look(double skipped, const Json& at, const BatchContext& context);
  [[nodiscard]] const doctor::Evidence::SkippedInput& seen() const noexcept { return seen_; }

 private:
  struct Hit;
  [[nodiscard]] std::uint64_t sequence(const Json& at) const;
  void read(std::uint64_t sequence, const BatchContext& context, std::vector<Hit>& hits) const;
  void look_at_prepared(const Batch& batch, std::uint64_t sequence, std::vector<Hit>& hits) const;

  const data::Loader& loader_;
  double batches_per_step_;
  double skipped_ = 0;
  std::uint64_t at_ = 0;          // number of the run's batches before the last call of begin() or look()
  double began_ = 0, spent_ = 0;  // steady-clock time at which the loop began, in seconds; seconds spent on reading again
  bool missed_ = false;
  std::set<std::pair<std::size_t, std::int64_t>> samples_;
  doctor::Evidence::SkippedInput seen_;
};

}  // namespace millrace
