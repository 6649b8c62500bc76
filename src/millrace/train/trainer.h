// The loop: steps, and what happens every N of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/data/cached_source.h"
#include "millrace/data/loader.h"
#include "millrace/metrics/board.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/snapshot/writer.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/config.h"
#include "millrace/train/plan.h"
#include "millrace/train/run_folder.h"
#include "millrace/train/stepper.h"

namespace millrace {

// What a trainer works with; all of it outlives the trainer. Null pointers leave the matching output out.
struct TrainerParts {
  const RunConfig* config = nullptr;
  Json config_values;  // as saved in snapshots
  Recipe* recipe = nullptr;
  Stepper* stepper = nullptr;
  telemetry::Timeline* timeline = nullptr;
  data::Loader* loader = nullptr;
  data::Loader* validation = nullptr;        // null = no validation
  const data::SampleCache* cache = nullptr;  // null = off
  telemetry::Console* console = nullptr;
  telemetry::RunLog* log = nullptr;
  telemetry::EventWriter* events = nullptr;
  Fs* fs = nullptr;
  RunFolder* folder = nullptr;       // null = nothing is written
  std::filesystem::path began_from;  // the snapshot that the run goes on from; "" = none
  bool saves_in_background = false;  // snapshots; else in the loop's thread
  Plan* plan = nullptr;              // a fallback to fp32 is written into it
  at::Device device = at::kCPU;
  std::int64_t total_steps = 0;  // 0 = open end (then epochs is 0 and max_steps is 0: refused before)
  std::string rate_unit = "samples";
  std::string metric_tags;  // before the names of validation metrics in event files, e.g. "val/"
  double units_per_sample = 1.0;
  bool recovers = true;       // from a step that runs out of memory
  bool may_recompute = true;  // then also by recomputing what the config does not name
  // One row per finished epoch, for history.csv; no means where there was no validation. Null = not wanted.
  std::function<void(std::uint64_t epoch, double train_loss, const std::map<std::string, double>& means, double seconds,
                     double rate)>
      history;
};

// Losses ("val_<objective>") and the recipe's own metrics over one pass of `loader` in evaluation mode, which the model is left
// in. `limit` batches, 0 = all; each in `split` parts. nullopt when a stop signal came first.
[[nodiscard]] std::optional<std::map<std::string, double>> validation_means(Recipe& recipe, Stepper& stepper,
                                                                            data::Loader& loader, at::Device device,
                                                                            std::int64_t limit, std::int64_t split = 1);

struct Metric {
  double last = std::numeric_limits<double>::quiet_NaN();
  // Of snapshot.best_metric (the validation loss), the lowest or highest; of the others, the value at that step. NaN is never
  // best: until there is a number, `best` is NaN and best_step -1.
  double best = std::numeric_limits<double>::quiet_NaN();
  std::int64_t best_step = -1;
};

enum class Ending : std::uint8_t { max_steps, epochs_done, early_stop, signal };
[[nodiscard]] std::string_view name_of(Ending ending) noexcept;  // "max_steps", "epochs", "early_stop", "signal"

// Belongs to the loop's thread. The order of what happens after a step is fixed: log, end of epoch, validation, snapshot.
class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  void restore(const snapshot::Content& content);  // SnapshotError when it does not fit the recipe
  // Trains until something ends it; a snapshot of the final state is saved before this returns. Throws TrainingDiverged,
  // DataError, SnapshotError …; content() is then still the state at the edge of the last whole step.
  Ending run();
  void save_after_error() noexcept;  // that state, if it is not saved yet; never throws

  [[nodiscard]] snapshot::Content content() const;  // of the whole state now; waits for the device
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  [[nodiscard]] bool has_ended() const { return !validation_pending_ && natural_end().has_value(); }  // no step is left to do
  // Of the state as it was saved at the run's end, or as it is now when the run was cut short.
  [[nodiscard]] std::string state_sha256() const { return state_sha256_.empty() ? snapshot::digest(content()) : state_sha256_; }
  [[nodiscard]] Json results() const;  // summary.json's part about losses, metrics, samples, rates, shares

 private:
  struct EpochRow {
    std::uint64_t epoch = 0;
    double train_loss = 0;
    double seconds = 0;
    double rate = 0;
  };
  [[nodiscard]] std::optional<Ending> natural_end() const;
  [[nodiscard]] std::optional<Ending> reason_to_stop() const;
  bool accumulate();
  bool gather();
  void split_further(const std::string& where, const std::string& reason);
  void tell_memory(const std::string& text, Json values) const;
  [[nodiscard]] Message no_room(const std::string& where, const std::string& reason) const;
  void note_peak();
  void forget_peak();
  [[nodiscard]] Json memory_results() const;
  std::optional<Batch> next_batch();
  void finish_step();
  Ending finish(Ending ending);
  void log();
  void end_epoch();
  void write_history(const std::map<std::string, double>& means);
  void draw() const;
  void validate();
  std::optional<std::map<std::string, double>> validation_that_fits();
  void note_validation(const std::map<std::string, double>& means);
  void save(bool required);
  void hold_folder();
  void bound_lag();
  void leave_out(std::int64_t nanoseconds) noexcept;
  enum class OnFailure : std::uint8_t { warn, as_configured, end };
  void note_save(OnFailure on_failure);
  [[nodiscard]] std::string judged_metric() const;
  [[nodiscard]] bool validation_due(bool epoch_ended) const;
  [[nodiscard]] bool snapshot_due() const;
  void check_divergence(double skipped_in_a_row) const;
  void require_finite() const;
  [[nodiscard]] std::string last_good() const;
  void fall_back_if_due();
  [[nodiscard]] telemetry::Progress progress() const;
  void record(std::string_view kind, Json values) const;

  TrainerParts parts_;
  std::int64_t step_ = 0;
  std::int64_t samples_ = 0;
  std::uint64_t epoch_ = 0;
  Json loader_state_;                // at the edge of the last whole step: what a snapshot saves
  std::vector<StepResult> pending_;  // of the step under way; counted when it is whole
  std::int64_t pending_rows_ = 0;
  std::int64_t split_ = 1;             // parts of a batch; only grows
  std::int64_t widest_batch_ = 1;      // rows of a batch's largest group, so far
  std::uint64_t step_peak_bytes_ = 0;  // of tensors, in steps alone
  bool epoch_ended_ = false;
  bool validation_pending_ = false;    // due now, or cut short by the stop that the snapshot was saved for
  std::optional<EpochRow> epoch_row_;  // of the epoch that ended, until its validation is known
  bool epoch_save_due_ = false;
  std::unique_ptr<snapshot::Writer> writer_;  // null when nothing is written
  std::int64_t saved_step_ = -1;              // saved, or being saved
  struct {
    std::int64_t done = 0, failed = 0;
    double blocked_ms = 0, write_ms = 0, lag_ms = 0;  // waited for the copy, written, waited by snapshot.max_lag
  } saves_;
  std::int64_t validated_step_ = -1;
  std::string state_sha256_;
  bool improved_ = false;
  std::int64_t validations_without_gain_ = 0;
  double early_stop_best_ = std::numeric_limits<double>::quiet_NaN();  // of the last gain that counted for patience
  metrics::Board window_;                                              // since the last log line
  metrics::Board epoch_board_;                                         // since the epoch began
  std::optional<double> loss_first_;
  std::optional<double> loss_last_;
  double log_rate_ = 0;
  double wait_share_ = 0;
  data::CacheCounters cache_logged_;  // at the last log line
  std::map<std::string, Metric> metrics_;
  std::int64_t window_samples_ = 0;
  std::int64_t window_steps_ = 0;
  std::int64_t window_begin_ns_ = 0;
  std::int64_t epoch_begin_ns_ = 0;
  std::int64_t epoch_samples_ = 0;
  std::optional<double> first_step_seconds_;  // since the process started
  std::int64_t session_samples_ = 0;          // of this process
};

}  // namespace millrace
