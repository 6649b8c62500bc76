#include "millrace/runs/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/doctor/cause.h"
#include "millrace/snapshot/layout.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/run_folder/run_record.h"

namespace millrace::runs {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostJson = 64ULL << 20U;  // the most bytes of a JSON file
constexpr std::uint64_t kMostLog = 256ULL << 20U;
constexpr std::uint64_t kEndOfLog = 1ULL << 16U, kMostEndOfLog = 1ULL << 24U;
constexpr std::size_t kMostBeside = 64;

// The last bytes of a file, at most `most`. "" if it is not a regular file or can't be read.
std::string end_of(const fs::path& path, std::uint64_t most) {
  try {
    const InputFile file(path);
    std::string text(std::min(file.size(), most), '\0');
    file.read(file.size() - text.size(), std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const DataError&) {
    return "";
  }
}

Json json_in(const fs::path& path) {
  Json json = parse_shallow(end_of(path, kMostJson));
  return json.is_discarded() ? Json() : json;
}

Run::LastLines last_lines_in(const std::string& text) {
  Run::LastLines last;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    Json line = parse_shallow(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    const std::string kind = text_at(line, {"kind"});
    if (kind == "start") last.findings = Json();
    if (kind == "start" || kind == "step" || kind == "end") last.has_end = kind == "end";
    if (kind == "step")
      last.step = std::move(line);
    else if (kind == "findings")
      last.findings = std::move(line);
  }
  return last;
}

}  // namespace

const Json& Run::read(std::optional<Json>& kept, const char* name) const {
  if (!kept) kept = json_in(folder_ / name);
  return *kept;
}

const Run::LastLines& Run::last_lines() const {
  if (last_lines_) return *last_lines_;
  // Reads more if there is no step line, because a step line is long if the recipe has thousands of metrics.
  for (std::uint64_t most = kEndOfLog;; most *= 16) {
    const std::string text = end_of(folder_ / run_files::kLog, most);
    last_lines_ = last_lines_in(text);
    if (!last_lines_->step.is_null() || text.size() < most || most >= kMostEndOfLog) return *last_lines_;
  }
}

const std::vector<std::vector<Json>>& Run::processes() const {
  if (!processes_) {
    processes_ = doctor::processes_in(end_of(folder_ / run_files::kLog, kMostLog));
    std::ranges::move(doctor::processes_in(end_of(folder_ / run_files::kLock, kMostLog)), std::back_inserter(*processes_));
  }
  return *processes_;
}

std::string Run::recipe() const { return recipe_of_run(Fs::real(), folder_); }

bool Run::is_script() const { return text_at(read(record_, run_files::kRun), {"kind"}) == "script"; }

std::optional<std::int64_t> Run::newest_snapshot() const {
  const std::vector<snapshot::Found> found = snapshot::list(Fs::real(), folder_);
  const auto newest =
      std::find_if(found.rbegin(), found.rend(), [](const snapshot::Found& each) { return snapshot::is_ours(Fs::real(), each); });
  return newest == found.rend() ? std::nullopt : std::optional(newest->step);
}

std::string Run::data() const {
  const std::vector<snapshot::Found> found = snapshot::list(Fs::real(), folder_);
  for (auto each = found.rbegin(); each != found.rend(); ++each) {
    if (!snapshot::is_ours(Fs::real(), *each)) continue;
    std::string text = text_at(json_in(each->path / "state.json"), {"parts", snapshot::kLoader, "json", "fingerprint"});
    if (!text.empty()) return text;
  }
  return "";
}

bool Run::is_running() const {
  const int descriptor = ::open((folder_ / run_files::kLock).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return false;
  // true only if another process holds the lock; a file system without locks gives another error
  const bool locked = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

bool Run::is_there() const {
  std::error_code error;
  return fs::exists(folder_ / run_files::kRun, error) || fs::exists(folder_ / run_files::kLog, error) ||
         fs::exists(folder_ / run_files::kSummary, error) || fs::is_directory(folder_ / run_files::kSnapshots, error);
}

std::string Run::written() const {
  std::time_t newest = 0;
  for (const char* name : {run_files::kSummary, run_files::kLog, run_files::kConfig}) {
    std::error_code error;
    const auto written = fs::last_write_time(folder_ / name, error);
    if (error) continue;
    const auto system = std::chrono::file_clock::to_sys(written);
    newest = std::max(newest, std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::seconds>(system)));
  }
  std::tm local{};
  localtime_r(&newest, &local);
  char text[32];
  return newest == 0 ? "" : std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local));
}

std::vector<fs::path> Run::branches() const {
  std::error_code error;
  std::vector<fs::path> branches;
  for (fs::directory_iterator entry(folder_ / run_files::kBranches, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (Run(entry->path()).is_there()) branches.push_back(entry->path());
  }
  std::sort(branches.begin(), branches.end());
  return branches;
}

bool is_summary_of(const Json& summary, const Json& line) {
  if (!summary.is_object()) return false;
  return !number_at(summary, {"steps"}) || count_at(summary, {"steps"}) >= count_at(line, {"step"});
}

std::vector<fs::path> runs_beside(const fs::path& run) {
  std::vector<std::pair<fs::file_time_type, fs::path>> beside;
  std::error_code error;
  fs::directory_iterator entry(fs::absolute(run).lexically_normal().parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code none;
    if (fs::equivalent(entry->path(), run, none)) continue;
    const auto time = fs::last_write_time(entry->path() / run_files::kSummary, none);
    if (!none) beside.emplace_back(time, entry->path());
  }
  std::ranges::sort(beside, std::ranges::greater());
  beside.resize(std::min(beside.size(), kMostBeside));
  std::vector<fs::path> folders;
  folders.reserve(beside.size());
  for (auto& [time, folder] : beside) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace millrace::runs
