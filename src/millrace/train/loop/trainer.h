// The training loop: it makes steps, and every N steps it logs, validates or saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"
#include "millrace/doctor/sampler.h"
#include "millrace/metrics/confusion.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/loop/detail/recovery.h"
#include "millrace/train/loop/detail/saves.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/block_times.h"
#include "millrace/train/report/meter.h"
#include "millrace/train/report/phase_clock.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/report/scores.h"
#include "millrace/train/run_folder/run_folder.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/plan.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/watch/diagnosis.h"
#include "millrace/train/watch/memory_watch.h"
#include "millrace/train/watch/profiler.h"
#include "millrace/train/watch/skipped_inputs.h"
#include "millrace/train/watch/thaw_watch.h"

namespace millrace {

struct ConvolutionChoice;  // defined in train/assembly/convolution_choice.h

enum class Ending : std::uint8_t { max_steps, epochs_done, early_stop, signal };
[[nodiscard]] std::string_view name_of(Ending ending) noexcept;  // "max_steps", "epochs", "early_stop", "signal"

// Belongs to the loop's thread. After a step the order is fixed: log, end of epoch, validation, snapshot. All ranks of a run make
// the same calls.
class Trainer {
 public:
  // The objects and settings that a trainer works with. All objects must outlive the trainer. A pointer must not be null unless
  // its comment says what null means.
  struct Parts {
    const RunConfig* config = nullptr;
    Json config_values;  // the config as it is saved in snapshots
    Recipe* recipe = nullptr;
    Stepper* stepper = nullptr;
    telemetry::Timeline* timeline = nullptr;
    data::Loader* loader = nullptr;
    data::Loader* validation = nullptr;               // null = no validation
    const data::Cache* cache = nullptr;               // null = no cache
    Plan* plan = nullptr;                             // the trainer records a fallback to fp32 in it
    const ConvolutionChoice* convolutions = nullptr;  // results of the trial before the run's first step; null = no trial
    SaveDestination place;
    Reporter::Sinks sinks;
    Reporter::RecordNames names;
    bool recovers = true;                // recover from out-of-memory; false leaves the error to the caller
    bool may_recompute = true;           // recovery may also recompute blocks that the config does not name
    bool batch_ahead = true;             // the switchboard's row batch_ahead
    bool step_graph = true;              // the switchboard's row step_graph
    std::string frozen_source;           // where the recipe's frozen weights come from; recorded in snapshots that leave these
                                         // weights out
    std::int64_t total_steps = 0;        // number of steps of the whole run; 0 = no limit (the config's checks refuse epochs =
                                         // max_steps = 0)
    Agreement* agreement = nullptr;      // null = one process
    doctor::Sampler* sampler = nullptr;  // null = readings of the machine are off
    std::uint64_t cacheable_bytes = 0;   // see Diagnosis::Parts
    std::function<std::unique_ptr<RemedyTrials>()> doctor_trials;  // null = no trials
    doctor::Evidence::Earlier earlier;                             // facts of earlier runs, for the doctor
    // Called once, with the state of the first snapshot. Returns a warning; "" = no fault was found. Null = no check.
    std::function<std::string(const snapshot::Content&)> check_snapshot;
  };

  explicit Trainer(Parts parts);

  void restore(const snapshot::Content& content);  // throws SnapshotError if `content` does not fit the recipe
  // Trains until the run ends, and saves a snapshot of the final state before it returns. Throws TrainingDiverged, DataError,
  // SnapshotError …; content() then still returns the state after the last complete step.
  Ending run();
  void save_after_error() noexcept;  // saves the state after the last complete step, unless it is saved already; never throws
  [[nodiscard]] std::string last_snapshot() { return saves_.last(); }  // "the last snapshot is PATH; ", or ""

  [[nodiscard]] snapshot::Content content() const;  // the complete state now; waits for the device
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  // True if no step is left to do.
  [[nodiscard]] bool has_ended() const { return !validation_pending_ && natural_end().has_value(); }
  // Hash of the state that run() saved at its end. If run() has not come to its end: hash of the present state.
  [[nodiscard]] std::string state_sha256() const;  // "" if a part of the state is on ranks that no longer answer
  [[nodiscard]] Json results() const;              // the part of summary.json about losses, metrics, samples, rates, shares
  [[nodiscard]] Json times() const;                // {"accounts", "wall_s"}: how this process spent its time so far; the accounts
                                                   // add up to wall_s

 private:
  // The work that is due after the last step of an epoch.
  struct EpochEnd {
    std::uint64_t of_step = 1;  // epoch of the latest step, 1-based
    bool reached = false;       // true: the current step is the epoch's last
    bool save_due = false;
    std::optional<Meter::EpochRow> row;  // the epoch's row, which is kept until the epoch's validation is done
  };
  // A sync is a point after a step at which all ranks have the same state and can act together. If the ranks average their
  // weights (distributed.average_every), a sync follows every averaging; otherwise it follows each step.
  struct Sync {
    bool now = true;          // true: the latest step ends at a sync
    std::int64_t before = 0;  // the step of the previous sync
    std::int64_t rows = 0;    // rows since the previous sync: of this rank if ranks average their weights, otherwise of all ranks
  };
  [[nodiscard]] std::optional<Ending> natural_end() const;
  [[nodiscard]] Agreement& agreement() const;
  [[nodiscard]] Diagnosis::Parts diagnosis_parts() const;
  [[nodiscard]] BatchContext batch_context() const;
  void begin();
  std::optional<Ending> between_steps();
  bool take_finished_save();  // true if some rank asks all ranks to stop
  void wait_for_late_save();
  void begin_profiled_step();
  void end_profiled_step(bool stepped);
  void end_profile() noexcept;
  bool take_step();
  void log_if_due();
  void show_progress();
  std::int64_t run_micro_batches(std::vector<StepResult>& results, metrics::Board& measured);
  std::optional<Batch> next_batch();
  void finish_step(const std::vector<StepResult>& results, const metrics::Board& measured);
  std::int64_t rows_of_all();
  Ending finish(Ending ending);
  [[nodiscard]] LoggedStep logged_step(const StepRecord& record) const;
  [[nodiscard]] StepRecord::Memory memory_now() const;
  MemoryWatch::Reading watch_memory();
  double wait_for_steps();  // waits until the device has done all launched work; returns the seconds of waiting
  std::optional<double> read_phases(double waited);
  [[nodiscard]] telemetry::Timeline::Summary window_times();       // times since the last log line; starts a new window
  [[nodiscard]] telemetry::Timeline::Summary total_times() const;  // times of this process
  [[nodiscard]] Json accounts_now() const;                         // accounts of this process
  [[nodiscard]] std::vector<BlockTime> blocks_of(const Json& accounts) const;
  void diagnose(const StepRecord& record, const MemoryWatch::Reading& memory);
  void gather_waits();
  void look_at_skipped(double skipped);
  void log();
  [[nodiscard]] double epochs_in_all() const;  // length of the run in epochs; 0 = no limit
  void end_epoch();
  void write_history(const metrics::Means& means);
  void draw(const std::vector<metrics::Confusion>& tables);
  void check_first_snapshot();
  void keep_tables();
  void validate();
  void record_validation(const metrics::Means& means, double seconds, std::int64_t batches);
  void save(bool last);
  [[nodiscard]] bool is_due(std::int64_t every) const;  // true if a multiple of `every` steps was reached since the previous sync
  [[nodiscard]] bool validation_due(bool epoch_ended) const;
  [[nodiscard]] std::string remedy_of_divergence() const;
  void check_divergence(double skipped_in_a_row);
  void require_finite();
  void check_weights();
  void fall_back_if_due();
  void use_graph();
  void report_graph();  // reports whether steps are launched as GPU graphs: once that is known, and after each change
  void write_plan();

  Parts parts_;
  Feed feed_;
  Reporter reporter_;
  Meter meter_;
  Scores scores_;
  Saves saves_;
  Recovery recovery_;
  MemoryWatch memory_watch_;
  std::unique_ptr<Diagnosis> diagnosis_;  // null = log.doctor is off, or this is not rank 0
  ThawWatch thaw_watch_;
  SkippedInputs skipped_inputs_;
  doctor::Evidence::SkippedInput skipped_input_;  // summed over all ranks
  double machine_told_ = 0;                       // steady-clock time, in seconds, of the log's last line about the machine; 0 =
                                                  // never
  std::unique_ptr<PhaseClock> phases_;  // null: a step is complete when the host is done with it, so the host's clock suffices
  std::unique_ptr<StepProfiler> profiler_;  // null: there are no steps to record, or all are recorded
  std::int64_t step_ = 0;
  std::int64_t began_step_ = 0;      // the step after which this process began
  std::int64_t averaged_bytes_ = 0;  // bytes that this rank sent to average the weights over the ranks
  std::uint64_t epoch_ = 0;
  Json frozen_;        // record of the weights that snapshots leave out; null = no weights are left out
  Json loader_state_;  // the loader's state after the last complete step, as snapshots save it
  EpochEnd epoch_end_;
  Sync sync_;
  bool is_whole_ = true;             // false while an update is under way, and after an update was interrupted
  std::string reported_graph_;       // the reason that report_graph() last reported
  bool validation_pending_ = false;  // a validation is due now, or a stop signal interrupted it and the snapshot was saved
                                     // without it
  std::int64_t validated_step_ = -1;
  data::Cache::Counters cache_logged_;  // counters at the last log line
  std::string state_sha256_;
};

}  // namespace millrace
