// A run as one row of a table, from its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/runs/run.h"

namespace millrace::runs {

struct RunRow {
  struct Metric {
    std::string name;
    std::optional<double> last;     // at the last validation; nullopt: not a number
    std::optional<double> best;     // its own best, at best_step; nullopt: unknown
    std::optional<double> at_best;  // at RunRow::best_step; nullopt: not measured there, or not a number
    std::int64_t best_step = 0;
    std::int64_t version = 1;  // see metrics::Means::MetricVersion
  };

  std::filesystem::path folder;
  std::string recipe;  // "" if no file names it
  std::int64_t step = 0;
  std::optional<double> loss;  // the latest logged training loss
  // "running", "done: <why>", "failed", "stopped" (can be resumed), "new" (no snapshot yet), "unreadable: <why>".
  std::string state;
  std::string when;                      // time of the last written line, local time
  std::vector<Metric> metrics;           // in the recipe's order, without quiet metrics
  std::optional<double> step_ms;         // median
  std::optional<double> rate;            // `rate_unit` per second: the recipe's unit, else samples
  std::string rate_unit;                 // "tokens"
  std::string best_metric;               // the metric that judges, else the recipe's first
  std::int64_t best_version = 1;         // version of best_metric, see metrics::Means::MetricVersion
  std::optional<double> best;            // best value of best_metric
  std::int64_t best_step = 0;            // its step, if there is such a value
  std::optional<std::int64_t> findings;  // findings of the doctor; nullopt: not checked, or not near the end of the log
  std::string bound_by;                  // the largest account; "" = unknown
  [[nodiscard]] Json to_json() const;
};

[[nodiscard]] RunRow row_of(const Run& run);
// All run folders below `root`, newest first. Damaged files leave their part of a row empty; an unreadable folder is a row with
// the reason as state.
[[nodiscard]] std::vector<RunRow> find_runs(const std::filesystem::path& root);

}  // namespace millrace::runs
