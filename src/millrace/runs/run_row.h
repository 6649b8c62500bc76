// A run as one row of a table: what its files say about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/runs/run.h"

namespace millrace::runs {

struct RunMetric {
  std::string name;
  std::optional<double> last, best;  // of the last validation and of the best; none: not a number
  std::int64_t best_step = 0;
  std::int64_t version = 1;  // see metrics::MetricVersion
};

struct RunRow {
  std::filesystem::path folder;
  std::string recipe;  // "" when nothing tells
  std::int64_t step = 0;
  std::optional<double> loss;  // the newest training loss that was logged
  std::string
      state;         // "running", "done: <why>", "failed", "stopped" (it can go on), "new" (no snapshot yet), "unreadable: <why>"
  std::string when;  // of the last line that was written, local time
  std::vector<RunMetric> metrics;        // in the recipe's order, without those that stay out of lines for people
  std::optional<double> step_ms;         // median
  std::optional<double> rate;            // of what `rate_unit` names, a second: the recipe's unit, else samples
  std::string rate_unit;                 // "tokens"
  std::string best_metric;               // the one that judges, else the recipe's first
  std::int64_t best_version = 1;         // of it, see metrics::MetricVersion
  std::optional<double> best;            // of it
  std::optional<std::int64_t> findings;  // of the doctor; none: nobody looked, or the log does not say near its end
  std::string bound_by;                  // the largest account; "" = not known
  [[nodiscard]] Json to_json() const;
};

[[nodiscard]] RunRow row_of(const Run& run);
// All run folders below `root`, newest first. Damaged files leave their part of a row empty; a folder that can't be looked into
// is a row whose state says why.
[[nodiscard]] std::vector<RunRow> find_runs(const std::filesystem::path& root);

}  // namespace millrace::runs
