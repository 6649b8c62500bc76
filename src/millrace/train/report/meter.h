// Adds up losses, samples and time of a run between two log lines and over an epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/core/agreement.h"
#include "millrace/device/neighbours.h"
#include "millrace/metrics/board.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Sums over the steps since the last log line.
struct Window {
  metrics::Means means;  // losses and their terms by name; with log.train_metrics also the recipe's metrics, as "train/<name>"
  double seconds = 0;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::optional<double> others;  // share of the time in which other programs used cores that this process needed; nullopt: not
                                 // known
};

// Sums of losses stay on the device until a log line or the end of an epoch needs them, so that no step waits for a copy.
class Meter {
 public:
  struct EpochRow {
    std::uint64_t epoch = 0;  // 1-based
    double train_loss = 0;    // mean of the first objective's loss; NaN if all steps of the epoch were skipped
    double seconds = 0;       // time in this process, without validations
    std::int64_t samples = 0;
    std::int64_t samples_here = 0, steps_here = 0;  // samples and steps that this process made in `seconds`; those of earlier
                                                    // processes are excluded
    double validation_seconds = 0;
    std::int64_t validation_batches = 0;  // number of batches of the validation at the epoch's end; 0 = there was no validation
    std::uint64_t peak_bytes = 0;         // the most bytes of tensors during steps and between them; 0 = not known
  };

  // `computes_here`: true if this process's cores compute the steps; false on a GPU, because other programs on the cores do not
  // slow its steps down.
  explicit Meter(std::string first_loss, bool computes_here = true);

  void start();                                                // starts the clocks; called once, before the first step
  void add(const Stepper& stepper, const StepResult& result);  // adds a micro-batch of a step that was not skipped
  void add(const metrics::Board& measured);                    // adds the recipe's own metrics of a step that was not skipped
  void end_step(std::int64_t rows);
  // sum_window(), sum_epoch() and bring_to_root() add up over all ranks. They are collective: all ranks must call them.
  void sum_window(Agreement& agreement);  // every rank gets the sums; call before take_window()
  void sum_epoch(Agreement& agreement);   // every rank gets the sums; call before take_epoch()
  // Moves all sums to rank 0, which saves them in the snapshot. The other ranks continue with zero.
  void bring_to_root(Agreement& agreement);
  void forget_sums();
  void leave_out(std::int64_t nanoseconds) noexcept;  // excludes a time from the rates, because it was not spent on steps

  [[nodiscard]] bool is_empty() const noexcept { return window_.empty(); }
  [[nodiscard]] double seconds_per_step() const;  // mean time of a step since the last log line; 0 if no step was made
  Window take_window();                           // returns the window and starts a new one; waits for the device
  EpochRow take_epoch(std::uint64_t epoch);

  // The loss in the first log line of the run.
  [[nodiscard]] std::optional<double> first_loss() const noexcept { return loss_first_; }
  [[nodiscard]] std::optional<double> last_loss() const noexcept { return loss_last_; }
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }  // samples since the run began
  // The sums of this process so far. Each call returns later values, so use a single result if its members must add up.
  // `others`: see device::Neighbours; nullopt if this process's cores do not compute the steps.
  struct OfProcess {
    std::int64_t samples = 0;
    std::optional<double> others;
    std::optional<double> first_step_seconds;  // time from the start of the process to the end of its first step
  };
  [[nodiscard]] OfProcess of_process() const;

  void write_state(Json& trainer, Json& report) const;  // `trainer` becomes part of the snapshot's state; `report` is used in
                                                        // reports only
  void load_state(const SavedJson& trainer, const SavedJson& report);

 private:
  std::string first_loss_;
  bool computes_here_;
  metrics::Board window_;
  metrics::Board measured_;  // the recipe's own metrics since the last log line
  metrics::Board epoch_;
  std::int64_t window_steps_ = 0, window_samples_ = 0, epoch_samples_ = 0, samples_ = 0, process_samples_ = 0;
  std::int64_t epoch_samples_here_ = 0, epoch_steps_here_ = 0;
  std::int64_t window_begin_ns_ = 0, epoch_begin_ns_ = 0;
  std::optional<double> loss_first_, loss_last_;
  std::optional<double> first_step_seconds_;
  device::Neighbours neighbours_;
};

}  // namespace millrace
