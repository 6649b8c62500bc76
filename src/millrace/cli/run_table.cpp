#include "millrace/cli/run_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include "millrace/base/fs.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

// Parsed, or null: a file that a crash cut must not hide the other runs.
Json read_json(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return stream ? Json::parse(stream, nullptr, false) : Json();
}

std::string end_of(const fs::path& file, std::streamoff bytes) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : 0;
  stream.seekg(std::max<std::streamoff>(0, size - bytes));
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The newest "step" line of log.jsonl; null when there is none near its end.
Json last_step_line(const fs::path& folder) {
  const std::string text = end_of(folder / "log.jsonl", 1 << 16);
  Json found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
                            nullptr, false);
    if (line.is_object() && line.value("kind", Json()) == "step") {
      found = std::move(line);
    }
    begin = end + 1;
  }
  return found;
}

// The "start" line of log.jsonl, which names the recipe before there is a summary; null when there is none near its beginning.
Json start_line(const fs::path& folder) {
  std::ifstream stream(folder / "log.jsonl", std::ios::binary);
  constexpr int kLines = 20;
  std::string text;
  for (int i = 0; i < kLines && std::getline(stream, text); ++i) {
    Json line = Json::parse(text, nullptr, false);
    if (line.is_object() && line.value("kind", Json()) == "start") return line;
  }
  return {};
}

std::optional<double> number_at(const Json& json, const Json::json_pointer& place) {
  const bool there = json.is_object() && json.contains(place) && json.at(place).is_number();
  return there ? std::optional(json.at(place).get<double>()) : std::nullopt;
}

std::string text_at(const Json& json, const std::string& key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

bool is_locked(const fs::path& folder) {
  const int descriptor = ::open((folder / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return false;
  }
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  ::close(descriptor);
  return locked;
}

std::string state_after(const std::string& reason, bool can_go_on) {
  if (reason == "error") {
    return "failed";
  }
  if (!reason.empty() && reason != "signal") {
    return "done: " + reason;
  }
  return can_go_on ? "stopped" : "new";
}

std::string time_of(const fs::path& folder) {
  std::time_t newest = 0;
  for (const char* name : {"summary.json", "log.jsonl", "config.json"}) {
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

}  // namespace

Json RunRow::to_json() const {
  return {{"folder", folder.string()},           {"recipe", recipe}, {"step", step},
          {"loss", loss ? Json(*loss) : Json()}, {"state", state},   {"when", when}};
}

bool is_run_folder(const fs::path& folder) {
  return fs::exists(folder / "log.jsonl") || fs::exists(folder / "summary.json") || fs::is_directory(folder / "snapshots");
}

RunRow read_run(const fs::path& folder) {
  const Json summary = read_json(folder / "summary.json");
  const Json line = last_step_line(folder);
  const auto snapshots = snapshot::list(Fs::real(), folder);
  RunRow row;
  row.folder = folder;
  row.recipe = text_at(summary, "recipe");
  row.recipe = row.recipe.empty() ? text_at(start_line(folder), "recipe") : row.recipe;
  row.recipe = row.recipe.empty() ? folder.parent_path().filename().string() : row.recipe;
  const auto step = [](const std::optional<double>& number) { return static_cast<std::int64_t>(number.value_or(0)); };
  row.step = std::max(step(number_at(summary, "/steps"_json_pointer)), step(number_at(line, "/step"_json_pointer)));
  if (!snapshots.empty()) {
    row.step = std::max(row.step, snapshots.back().step);
  }
  row.loss = number_at(summary, "/loss/last"_json_pointer);
  row.loss = row.loss ? row.loss : number_at(line, "/loss"_json_pointer);
  if (is_locked(folder)) {
    row.state = "running";
  } else {
    row.state = state_after(text_at(summary, "exit_reason"), !snapshots.empty());
  }
  row.when = time_of(folder);
  return row;
}

std::vector<RunRow> find_runs(const fs::path& root) {
  std::vector<RunRow> rows;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_directory()) {
      continue;
    }
    if (is_run_folder(entry->path())) {
      rows.push_back(read_run(entry->path()));
      entry.disable_recursion_pending();
    } else if (entry.depth() >= 2) {
      entry.disable_recursion_pending();
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const RunRow& a, const RunRow& b) { return a.when != b.when ? a.when > b.when : a.folder < b.folder; });
  return rows;
}

}  // namespace millrace::cli
