// A run's output while it trains. Each record becomes a line on the console, in log.jsonl, in event files and in history.csv.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/cache/cached_source.h"
#include "millrace/device/device.h"
#include "millrace/doctor/finding.h"
#include "millrace/doctor/nvml.h"
#include "millrace/format/csv.h"
#include "millrace/picture/picture.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/detail/step_log.h"
#include "millrace/train/report/meter.h"
#include "millrace/train/report/scores.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/step/stepper_report.h"

namespace millrace {

// The contents of a log line.
struct StepRecord {
  // The present memory and its maximum, as shown to people. On a GPU they come from the allocator's counters; on a CPU they are
  // the memory of the process.
  struct Memory {
    bool on_gpu = false;
    device::Backend::MemoryCounters counters;
    std::optional<double> gpu_use = std::nullopt;  // share of the recent time in which the GPU computed; nullopt: not known
  };

  std::int64_t step = 0;
  std::int64_t total_steps = 0;  // 0 = no limit
  std::uint64_t epoch = 1;       // 1-based
  Window window;
  std::vector<ObjectiveReport> objectives;  // in the order of the objectives
  double skipped = 0;                       // number of steps in the run so far that were skipped because a value was not finite
  std::int64_t samples = 0;                 // number of samples in the run so far
  telemetry::Timeline::Summary times;       // times of the steps since the last log line
  std::optional<double> host_ms = std::nullopt;  // on a GPU: the host's time per step, in ms, for launching the GPU's work
  std::optional<data::Cache::Counters> cache;    // counts since the last record; `bytes` is what the cache holds now
  std::optional<Memory> memory = std::nullopt;
  std::optional<doctor::Nvml::Reading> gpu = std::nullopt;  // the GPU's state, read from its driver
  LoggedStep logged = {};                                   // values for the recipe's own log; the reporter adds the means
};

// Belongs to the loop's thread. A failed write never stops a run: see telemetry/run_log.h and format/csv.h.
class Reporter {
 public:
  struct ValidationRecord {
    std::int64_t step = 0;
    metrics::Means means;
    std::string judged;  // the name of the metric that selects the best snapshot
    bool gained = false;
    Metric best;  // last and best value of the metric `judged`
    double seconds = 0;
    std::int64_t batches = 0;
  };

  // Names and units in the records, from the recipe's facts and its first objective.
  struct RecordNames {
    std::string loss = "loss";  // name of the first objective's loss
    std::string rate_unit = "samples";
    double units_per_sample = 1.0;
    std::string metric_tags;           // prefix of validation metrics' names in event files, e.g. "val/"
    std::vector<std::string> history;  // metrics that get a column of history.csv; empty: those that the console shows
    std::optional<StepLog> step_log = std::nullopt;
    std::optional<BlindAnswer> blind = std::nullopt;
  };

  struct Sinks {
    telemetry::Console* console = nullptr;     // must not be null
    telemetry::RunLog* log = nullptr;          // null = no log.jsonl
    telemetry::EventWriter* events = nullptr;  // null = no event files
    // The path of history.csv; "" = no such file. The file is opened when its first row is written. Rows of epochs after
    // `epochs_kept` are then removed.
    std::filesystem::path history;
    std::int64_t epochs_kept = 0;
    PathOfTable step_log = nullptr;  // the path of the recipe's own log; null = no such log. Requires fs
    std::int64_t steps_kept = 0;     // rows of the recipe's own log after this step are removed
    LogConfig::Line line = LogConfig::Line::millrace;
    Fs* fs = nullptr;  // required if `history` or `step_log` is set
  };

  Reporter(Sinks sinks, RecordNames names);

  void step(const StepRecord& record);
  void progress(std::int64_t step, std::int64_t total_steps, std::uint64_t epoch, std::optional<double> loss,
                double seconds_per_step);
  void validation(const ValidationRecord& record);
  // Writes the row of an epoch. `on_console`: shows the epoch's line on the console too.
  void epoch(const Meter::EpochRow& row, std::int64_t step, const metrics::Means& means, bool on_console = false);
  // `fresh`: findings that are new; they go to the screen and the event files. `all`: all present findings; they go to log.jsonl
  // if `changed`.
  void findings(std::int64_t step, const std::vector<doctor::Finding>& fresh, const std::vector<doctor::Finding>& all,
                bool changed) const;
  void picture(const Picture& picture, std::int64_t step, std::string_view png);
  void memory(const StepRecord::Memory& memory, std::int64_t step) const;  // shows a separate line about memory
  void text(const std::string& lines) const;                               // shows the lines on the screen only
  void warning(const std::string& text) const { sinks_.console->warning(text); }
  void record(std::string_view kind, Json values) const;  // writes a line of log.jsonl
  void end_progress() const { sinks_.console->end_progress(); }
  [[nodiscard]] bool shows_progress() const { return sinks_.console->is_terminal(); }
  [[nodiscard]] const RecordNames& names() const noexcept { return names_; }

 private:
  [[nodiscard]] double rate_of(std::int64_t samples, double seconds) const;
  [[nodiscard]] std::optional<double> seconds_to_end(std::int64_t step, std::int64_t total_steps, double seconds_per_step) const;
  void own_log(const StepRecord& record);
  void history_row(const Meter::EpochRow& row, const metrics::Means& means);
  void step_line(const StepRecord& record) const;
  void step_json(const StepRecord& record) const;
  void step_events(const StepRecord& record) const;
  void describe_metrics(const ValidationRecord& record);

  Sinks sinks_;
  RecordNames names_;
  std::unique_ptr<format::CsvWriter> history_;
  std::optional<StepLogWriter> step_log_;
  double rate_ = 0;  // the rate in the last step record
  double wait_share_ = 0;
  std::optional<std::int64_t> began_at_;  // the step before the first step of this process
  double validation_seconds_ = 0;         // seconds of validations in this process so far
  Json metrics_described_;                // the content of the log's last line of kind "metrics"
};

// True if other programs used the cores for a share of the time that is worth reporting.
[[nodiscard]] bool worth_a_word(std::optional<double> others) noexcept;
[[nodiscard]] Json shares_of(const telemetry::Timeline::Summary& times);  // {phase: share of the loop's time}
// {account: seconds}, which add up to the wall time. `others`: the share of the time in which other programs used the cores; it
// becomes a separate account and is subtracted from the accounts of work.
[[nodiscard]] Json accounts_of(const telemetry::Timeline::Summary& times, std::optional<double> others);
[[nodiscard]] std::string largest_account(const telemetry::Timeline::Summary& times);  // the loop's account with the most time

}  // namespace millrace
