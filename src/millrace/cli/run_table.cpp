#include "millrace/cli/run_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/base/shallow_json.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/report/scores.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;                           // runs/<recipe>/<name> and one folder more
constexpr std::uint64_t kMostSummary = 64ULL << 20U;  // bytes
constexpr std::uint64_t kEnd = 1ULL << 16U;

// The first or last bytes; none when it is no file or can't be read: a crash or a stranger must not hide the other runs.
std::string part_of(const fs::path& path, std::uint64_t most, bool from_end) {
  try {
    const InputFile file(path);
    std::string text(std::min(file.size(), most), '\0');
    file.read(from_end ? file.size() - text.size() : 0, std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const DataError&) {
    return "";
  }
}

// Parsed, or null.
Json read_json(const fs::path& file) { return parse_shallow(part_of(file, kMostSummary, false)); }

// The last lines of these kinds in log.jsonl; null where there is none near its end.
struct LastLines {
  Json step, findings;
};

LastLines last_lines(const fs::path& folder) {
  const std::string text = part_of(folder / run_files::kLog, kEnd, true);
  LastLines last;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    Json line = parse_shallow(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    const std::string kind = line.is_object() && line.contains("kind") && line["kind"].is_string() ? line["kind"] : Json("");
    if (kind == "start") last.findings = Json();
    if (kind == "step") {
      last.step = std::move(line);
    } else if (kind == "findings") {
      last.findings = std::move(line);
    }
  }
  return last;
}

std::optional<double> number_at(const Json& json, const Json::json_pointer& place) {
  const bool there = json.is_object() && json.contains(place) && json.at(place).is_number();
  return there ? std::optional(json.at(place).get<double>()) : std::nullopt;
}

std::int64_t step_at(const Json& json, const Json::json_pointer& place) {
  constexpr double kMost = 1e15;  // what a stranger wrote must fit
  return static_cast<std::int64_t>(std::clamp(number_at(json, place).value_or(0), 0.0, kMost));
}

std::string text_at(const Json& json, const std::string& key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

std::string state_text(const Json& summary, std::int64_t newest_step) {
  switch (state_of_run(summary, newest_step)) {
    case RunState::unsaved:
      return "new";
    case RunState::stopped:
      return "stopped";
    case RunState::failed:
      return "failed";
    case RunState::finished:
      return "done: " + text_at(summary, "exit_reason");
  }
  return "";
}

// The step of the newest snapshot; nullopt when there is none. Folders with such names that are damaged or somebody else's don't
// count.
std::optional<std::int64_t> newest_snapshot(const fs::path& folder) {
  const std::vector<snapshot::Found> found = snapshot::list(Fs::real(), folder);
  const auto newest =
      std::find_if(found.rbegin(), found.rend(), [](const snapshot::Found& each) { return snapshot::is_ours(Fs::real(), each); });
  return newest == found.rend() ? std::nullopt : std::optional(newest->step);
}

std::string time_of(const fs::path& folder) {
  std::time_t newest = 0;
  for (const char* name : {run_files::kSummary, run_files::kLog, run_files::kConfig}) {
    std::error_code error;
    const auto written = fs::last_write_time(folder / name, error);
    if (!error) {
      const auto system = std::chrono::file_clock::to_sys(written);
      newest = std::max(newest, std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::seconds>(system)));
    }
  }
  std::tm local{};
  localtime_r(&newest, &local);
  char text[32];
  return newest == 0 ? "" : std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local));
}

// The runs in a folder and those below it. A folder that can't be read is a row of its own.
void add_runs(const fs::path& folder, int depth, std::vector<RunRow>& rows) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; depth < kDeepest && !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    if (is_run_folder(entry->path())) {
      rows.push_back(read_run(entry->path()));
      for (const fs::path& branch : branches_of(entry->path())) rows.push_back(read_run(branch));
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

std::vector<fs::path> branches_of(const fs::path& run) {
  std::error_code error;
  std::vector<fs::path> branches;
  for (fs::directory_iterator entry(run / run_files::kBranches, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (is_run_folder(entry->path())) branches.push_back(entry->path());
  std::sort(branches.begin(), branches.end());
  return branches;
}

std::string text_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

bool is_running(const fs::path& folder) {
  const int descriptor = ::open((folder / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return false;
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  ::close(descriptor);
  return locked;
}

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / run_files::kRun, error) || fs::exists(folder / run_files::kLog, error) ||
         fs::exists(folder / run_files::kSummary, error) || fs::is_directory(folder / run_files::kSnapshots, error);
}

namespace {

std::vector<RunMetric> metrics_of(const Json& summary) {
  std::vector<RunMetric> metrics;
  for (const std::string& name : metrics_in_order(summary)) {
    const Json& metric = summary["metrics"][name];
    if (!metric.is_object() || metric.contains("quiet")) continue;
    metrics.push_back({name, number_at(metric, "/last"_json_pointer), number_at(metric, "/best"_json_pointer),
                       step_at(metric, "/best_step"_json_pointer),
                       std::max<std::int64_t>(step_at(metric, "/version"_json_pointer), 1)});
  }
  return metrics;
}

// "tokens_per_s" says more than "samples_per_s", which is there too.
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

// Speed and findings of the process that the summary or, where it has gone on since, the log tells of.
void add_doctor(const Json& summary, const LastLines& last, RunRow& row) {
  const bool is_over = summary.is_object() && step_at(summary, "/steps"_json_pointer) >= step_at(last.step, "/step"_json_pointer);
  row.step_ms = is_over ? number_at(summary, "/step_ms/p50"_json_pointer) : number_at(last.step, "/step_ms_p50"_json_pointer);
  add_rate(is_over ? summary : last.step, row);
  const Json& found = is_over ? summary : last.findings;
  if (found.is_object() && found.contains("findings") && found["findings"].is_array())
    row.findings = static_cast<std::int64_t>(found["findings"].size());
  if (is_over) row.bound_by = text_at(summary, "bound_by");
}

void add_best(const fs::path& folder, RunRow& row) {
  const Json config = read_json(folder / run_files::kConfig);
  const auto judge = "/values/snapshot/best_metric"_json_pointer;
  const Json named = config.is_object() && config.contains(judge) ? config.at(judge) : Json();
  for (const RunMetric& metric : row.metrics) {
    if (!row.best_metric.empty() && named != metric.name) continue;
    row.best_metric = metric.name;
    row.best = metric.best;
    row.best_version = metric.version;
  }
}

}  // namespace

RunRow read_run(const fs::path& folder) {
  const Json summary = read_json(folder / run_files::kSummary);
  const LastLines last = last_lines(folder);
  const Json& line = last.step;
  RunRow row;
  row.folder = folder;
  row.recipe = recipe_of_run(Fs::real(), folder);
  row.recipe = row.recipe.empty() ? folder.parent_path().filename().string() : row.recipe;
  row.step = std::max(step_at(summary, "/steps"_json_pointer), step_at(line, "/step"_json_pointer));
  row.loss = number_at(summary, "/loss/last"_json_pointer);
  row.loss = row.loss ? row.loss : number_at(line, "/loss"_json_pointer);
  row.metrics = metrics_of(summary);
  add_doctor(summary, last, row);
  add_best(folder, row);
  row.when = time_of(folder);
  try {
    const auto snapshot = newest_snapshot(folder);
    row.step = std::max(row.step, snapshot.value_or(0));
    row.state = is_running(folder) ? "running" : state_text(summary, snapshot.value_or(0));
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

}  // namespace millrace::cli
