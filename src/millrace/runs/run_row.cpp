#include "millrace/runs/run_row.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/train/report/scores.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace::runs {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;  // folders are searched to this depth: runs/<recipe>/<name>, and one folder more

std::string state_text(const Json& summary, std::int64_t newest_step, bool has_end) {
  switch (state_of_run(summary, newest_step)) {
    case RunState::unsaved:
      return "new";
    case RunState::stopped:
      return has_end ? "stopped" : "died";
    case RunState::failed:
      return "failed";
    case RunState::finished:
      return "done: " + text_at(summary, {"exit_reason"});
  }
  return "";
}

// The state of a script's run. A script saves its own state, so it is not known whether the script could be resumed.
std::string script_state(const Json& summary) {
  const std::string reason = text_at(summary, {"exit_reason"});
  if (reason == "error") return "failed";
  if (reason == "signal") return "stopped";
  return reason.empty() ? "died" : "done";
}

// The name of the file that this user may not read and that decides the run's state; "" if there is no such file.
std::string closed_file(const fs::path& run) {
  for (const char* name : {run_files::kSummary, run_files::kLog}) {
    if (::access((run / name).c_str(), R_OK) != 0 && errno == EACCES) return name;
  }
  return "";
}

// Adds the runs below a folder, and their branches. A folder that can't be read becomes a row.
void add_runs(const fs::path& folder, int depth, std::vector<RunRow>& rows) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; depth < kDeepest && !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    if (const Run run(entry->path()); run.is_there()) {
      rows.push_back(row_of(run));
      for (const fs::path& branch : run.branches()) rows.push_back(row_of(Run(branch)));
    } else if (!entry->is_symlink(ignored)) {
      add_runs(entry->path(), depth + 1, rows);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    RunRow row;
    row.folder = folder;
    row.state = "unreadable: " + error.message();
    rows.push_back(std::move(row));
  }
}

}  // namespace

Json RunRow::to_json() const {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  return {{"folder", folder.string()},
          {"recipe", recipe},
          {"step", step},
          {"loss", or_null(loss)},
          {"state", state},
          {"when", when},
          {"step_ms", or_null(step_ms)},
          {"rate", or_null(rate)},
          {"rate_unit", rate_unit},
          {"best", or_null(best)},
          {"best_metric", best_metric},
          {"best_version", best_version},
          {"findings", or_null(findings)},
          {"bound_by", bound_by}};
}

namespace {

std::vector<RunRow::Metric> metrics_of(const Json& summary) {
  std::vector<RunRow::Metric> metrics;
  for (const std::string& name : metrics_in_order(summary)) {
    const Json& metric = summary["metrics"][name];
    if (!metric.is_object() || metric.contains("quiet")) continue;
    metrics.push_back({.name = name,
                       .last = number_at(metric, {"last"}),
                       .best = number_at(metric, {"best"}),
                       .at_best = number_at(metric, {"at_best"}),
                       .best_step = count_at(metric, {"best_step"}),
                       .version = std::max<std::int64_t>(count_at(metric, {"version"}), 1)});
  }
  return metrics;
}

// Adds the rate in the recipe's unit, such as "tokens_per_s", if the log has it, else "samples_per_s".
void add_rate(const Json& json, RunRow& row) {
  constexpr std::string_view kRate = "_per_s";
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (!key.ends_with(kRate) || key.size() == kRate.size() || key == "it_per_s" || !value.is_number()) continue;
    if (row.rate && key == "samples_per_s") continue;
    row.rate = value.get<double>();
    row.rate_unit = key.substr(0, key.size() - kRate.size());
  }
}

// Adds speed and findings. They come from the summary, or from the log if the run was resumed after the summary was written.
void add_doctor(const Json& summary, const Run::LastLines& last, RunRow& row) {
  const bool is_over = is_summary_of(summary, last.step);
  row.step_ms = is_over ? number_at(summary, {"step_ms", "p50"}) : number_at(last.step, {"step_ms_p50"});
  add_rate(is_over ? summary : last.step, row);
  const Json& found = is_over ? summary : last.findings;
  if (found.is_object() && found.contains("findings") && found["findings"].is_array())
    row.findings = static_cast<std::int64_t>(found["findings"].size());
  if (is_over) row.bound_by = text_at(summary, {"bound_by"});
}

// Copies `best` to `at_best`, and keeps `best` only for the judged metric. In summaries of earlier versions, the `best` of each
// metric is its value at the judged metric's best step.
void take_as_at_best(RunRow& row) {
  for (RunRow::Metric& metric : row.metrics) {
    metric.at_best = metric.best;
    if (metric.name != row.best_metric) metric.best.reset();
  }
}

void add_best(const Run& run, RunRow& row) {
  const Json& summary = run.summary();
  const bool says = summary.is_object() && summary.contains("best");
  const std::string named =
      says ? text_at(summary, {"best", "metric"}) : text_at(run.config(), {"values", "snapshot", "best_metric"});
  for (const RunRow::Metric& metric : row.metrics) {
    if (!row.best_metric.empty() && named != metric.name) continue;
    row.best_metric = metric.name;
    row.best = metric.best;
    row.best_step = metric.best_step;
    row.best_version = metric.version;
  }
  if (!says) take_as_at_best(row);
}

}  // namespace

RunRow row_of(const Run& run) {
  const Json& summary = run.summary();
  const Run::LastLines& last = run.last_lines();
  RunRow row;
  row.folder = run.folder();
  row.recipe = run.recipe();
  row.recipe = row.recipe.empty() ? row.folder.parent_path().filename().string() : row.recipe;
  row.step = std::max(count_at(summary, {"steps"}), count_at(last.step, {"step"}));
  const bool is_over = is_summary_of(summary, last.step);
  if (is_over) row.loss = number_at(summary, {"loss", "last"});
  row.loss = row.loss ? row.loss : number_at(last.step, {"loss"});
  row.metrics = metrics_of(summary);
  add_doctor(summary, last, row);
  add_best(run, row);
  row.when = run.written();
  try {
    const std::int64_t newest = run.newest_snapshot().value_or(0);
    // null if the latest process was killed or still runs, because the summary is then that of an earlier process
    const Json ending = is_over || last.has_end ? summary : Json();
    row.step = std::max(row.step, newest);
    row.state = run.is_running() ? "running" : run.is_script() ? script_state(ending) : state_text(ending, newest, last.has_end);
    if (const std::string closed = closed_file(row.folder); !closed.empty() && row.state != "running")
      row.state = "unreadable: " + closed + ": Permission denied";
  } catch (const SnapshotError& error) {
    row.state = "unreadable: " + error.message().what;
  }
  return row;
}

std::vector<RunRow> find_runs(const fs::path& root) {
  std::vector<RunRow> rows;
  add_runs(root, 0, rows);
  std::sort(rows.begin(), rows.end(),
            [](const RunRow& a, const RunRow& b) { return a.when != b.when ? a.when > b.when : a.folder < b.folder; });
  return rows;
}

}  // namespace millrace::runs
