// Counts between two log lines and over an epoch of a run: losses, samples, time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/core/agreement.h"
#include "millrace/device/neighbours.h"
#include "millrace/metrics/board.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// The steps since the last log line.
struct Window {
  metrics::Means means;  // losses and their terms; with log.train_metrics the recipe's metrics as "train/<name>"
  double seconds = 0;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::optional<double> others;  // the part of the time in which other programs used cores that this one wanted
};

// Sums of losses stay on the device until a log line or the end of an epoch needs them.
class Meter {
 public:
  struct EpochRow {
    std::uint64_t epoch = 0;  // 1-based
    double train_loss = 0;    // mean of the first objective; NaN if no step of the epoch counted
    double seconds = 0;       // time in this process, without validations
    std::int64_t samples = 0;
    std::int64_t samples_here = 0, steps_here = 0;  // made in these seconds; excludes those of an earlier process
    double validation_seconds = 0;
    std::int64_t validation_batches = 0;  // 0 = the epoch had no validation at its end
    std::uint64_t peak_bytes = 0;         // most bytes of tensors, in steps and at their edges; 0 = not known
  };

  // `computes_here`: true if this process's cores compute the steps; else other programs on the cores don't slow them.
  explicit Meter(std::string first_loss, bool computes_here = true);

  void start();                                                // starts the clocks; once, before the first step
  void add(const Stepper& stepper, const StepResult& result);  // one micro-batch of a step that counts
  void add(const metrics::Board& measured);                    // the recipe's own metrics of a step that counts
  void end_step(std::int64_t rows);
  // The next three calls form sums over all ranks and are collective.
  void sum_window(Agreement& agreement);  // sums the window's values, on every rank; call before take_window()
  void sum_epoch(Agreement& agreement);   // sums the epoch's values, on every rank; call before take_epoch()
  // Moves all sums to rank 0, which saves them; the other ranks restart at zero.
  void bring_to_root(Agreement& agreement);
  void forget_sums();
  void leave_out(std::int64_t nanoseconds) noexcept;  // excludes this time from the rates: it was not spent on steps

  [[nodiscard]] bool is_empty() const noexcept { return window_.empty(); }
  [[nodiscard]] double seconds_per_step() const;  // mean since the last log line; 0 if there was no step
  Window take_window();                           // returns the window and starts the next; waits for the device
  EpochRow take_epoch(std::uint64_t epoch);

  [[nodiscard]] std::optional<double> first_loss() const noexcept { return loss_first_; }  // loss in the run's first log line
  [[nodiscard]] std::optional<double> last_loss() const noexcept { return loss_last_; }
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }  // samples of the run
  // Sums of this process so far; read them once if parts must add up. `others`: see device::Neighbours; nullopt if steps are not
  // computed here.
  struct OfProcess {
    std::int64_t samples = 0;
    std::optional<double> others;
    std::optional<double> first_step_seconds;  // time from the start of the process to the end of its first step
  };
  [[nodiscard]] OfProcess of_process() const;

  void write_state(Json& trainer, Json& report) const;  // the trainer's part of a snapshot, and the part used only in reports
  void load_state(const SavedJson& trainer, const SavedJson& report);

 private:
  std::string first_loss_;
  bool computes_here_;
  metrics::Board window_;
  metrics::Board measured_;  // the recipe's own metrics in the window
  metrics::Board epoch_;
  std::int64_t window_steps_ = 0, window_samples_ = 0, epoch_samples_ = 0, samples_ = 0, process_samples_ = 0;
  std::int64_t epoch_samples_here_ = 0, epoch_steps_here_ = 0;
  std::int64_t window_begin_ns_ = 0, epoch_begin_ns_ = 0;
  std::optional<double> loss_first_, loss_last_;
  std::optional<double> first_step_seconds_;
  device::Neighbours neighbours_;
};

}  // namespace millrace
