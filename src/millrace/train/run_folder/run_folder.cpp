#include "millrace/train/run_folder/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <sstream>
#include <stdexcept>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/snapshot/keeper.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run_folder/detail/archive.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kStaging = ".new-";  // prefix of a staging folder's name; the process id follows
// a folder with a staging folder's name but without this file is not Millrace's
constexpr const char* kStagingMark = ".made-by-millrace";

std::string date_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H%M%S", &local);
  return text.data();
}

stdfs::file_type type_of(const stdfs::path& path) {
  std::error_code code;
  return stdfs::symlink_status(path, code).type();
}

bool is_there(const stdfs::path& path) { return type_of(path) != stdfs::file_type::not_found; }

// The name to which this process would rename a history.csv with other columns (see format::CsvWriter). The run's record lists
// the name before the file exists, so that a user's file with a similar name never becomes the run's.
std::string next_kept_history(const stdfs::path& run) {
  const std::string first = run_files::kHistoryBefore;
  std::string name = first;
  for (int i = 2; is_there(run / name); ++i) name = joined(std::vector{first, std::to_string(i)}, ".");
  return name;
}

std::optional<long> number_in(std::string_view text) {
  long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() && number > 0;
  return whole ? std::optional(number) : std::nullopt;
}

// "<name>.tmp.<process>.<n>", the temporary file of write_atomically().
struct Temporary {
  std::string name;
  long process = 0;
};
std::optional<Temporary> parse_temporary(const std::string& text) {
  const std::size_t middle = text.rfind(".tmp.");
  const std::size_t last = text.rfind('.');
  if (middle == std::string::npos || last <= middle + 4) return std::nullopt;
  const auto process = number_in(std::string_view(text).substr(middle + 5, last - middle - 5));
  return process ? std::optional(Temporary{text.substr(0, middle), *process}) : std::nullopt;
}

// The process of ".new-<process>" or ".new-<process>-<n>"; 0 for other names.
long process_of_staging(const std::string& name) {
  const std::string_view rest = std::string_view(name).substr(kStaging.size());
  return number_in(rest.substr(0, rest.find('-'))).value_or(0);
}

[[noreturn]] void cannot_use(const stdfs::path& folder, const std::string& why) {
  throw UsageError({"can't write to the run folder " + folder.string(), why, "choose another folder with --run"});
}

// True if the file holds only what a lock file may hold: process ids, and records that a signal handler added (system/crash.h).
bool is_bare_lock(const stdfs::path& file) {
  constexpr std::uintmax_t kMost = 65536;
  std::error_code code;
  if (stdfs::file_size(file, code) > kMost || code) return false;
  std::istringstream text(Fs::real().read_file(file));
  for (std::string line; std::getline(text, line);) {
    if (!number_in(line) && !line.empty() && !line.starts_with("{\"kind\":\"")) return false;
  }
  return true;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

// The lock file <run>/lock, which is held for the life of the object. Its lines are the ids of the processes that worked in the
// folder since the folder was last cleaned up. Records of a crash or a signal before the first step may follow the ids.
class RunFolder::Lock {
 public:
  // Locks the file. Returns null if the folder has disappeared.
  static std::unique_ptr<Lock> take(const stdfs::path& folder) {
    const stdfs::path file = folder / run_files::kLock;
    std::unique_ptr<Lock> lock(new Lock);
    constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    lock->descriptor_ = ::open(file.c_str(), kFlags | O_EXCL, 0644);
    lock->made_ = lock->descriptor_ >= 0;
    if (!lock->made_ && errno == EEXIST) lock->descriptor_ = ::open(file.c_str(), kFlags, 0644);
    if (lock->descriptor_ < 0) {
      if (errno == ENOENT && !is_there(folder)) return nullptr;
      cannot_use(folder, file.string() + ": " + std::strerror(errno));
    }
    struct stat opened {};
    ::fstat(lock->descriptor_, &opened);
    if (!S_ISREG(opened.st_mode)) cannot_use(folder, file.string() + " is not a regular file");
    // Waits and tries again, because `millrace runs` takes each lock for a moment to see whether a run holds it.
    constexpr timespec kMoment{0, 2'000'000};
    int taken = ::flock(lock->descriptor_, LOCK_EX | LOCK_NB);
    for (int i = 0; taken != 0 && errno == EWOULDBLOCK && i < 10; ++i) {
      ::nanosleep(&kMoment, nullptr);
      taken = ::flock(lock->descriptor_, LOCK_EX | LOCK_NB);
    }
    if (taken != 0) {
      if (errno == EWOULDBLOCK) {
        throw UsageError({"another process is training in " + folder.string(), file.string(),
                          "wait for it, stop it, or choose another folder with --run"});
      }
      throw UsageError({"can't lock the run folder " + folder.string() + ": " + std::strerror(errno), file.string(),
                        "some network file systems can't lock: choose a folder on another disk with --run"});
    }
    return lock->is_in(folder) ? std::move(lock) : nullptr;
  }
  // True if a process that opens the lock by the path `folder` gets this very file.
  [[nodiscard]] bool is_in(const stdfs::path& folder) const {
    struct stat opened {};
    struct stat named {};
    return ::fstat(descriptor_, &opened) == 0 && ::stat((folder / run_files::kLock).c_str(), &named) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
  }
  ~Lock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  [[nodiscard]] std::set<long> processes() const {
    std::array<char, 4096> text{};
    const ssize_t size = ::pread(descriptor_, text.data(), text.size(), 0);
    std::set<long> found;
    std::string_view rest(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      if (const auto number = number_in(rest.substr(0, end))) found.insert(*number);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return found;
  }
  // Writes the process ids. Errors are ignored; their only effect is that on a full disk a leftover file may stay in the folder
  // for ever.
  void set_processes(const std::set<long>& processes) const {
    std::string text;
    for (const long process : processes) text += std::to_string(process) + "\n";
    if (::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
      static_cast<void>(::ftruncate(descriptor_, static_cast<off_t>(text.size())));
  }
  [[nodiscard]] bool made() const noexcept { return made_; }  // true: this object created the lock file

 private:
  Lock() = default;
  int descriptor_ = -1;
  bool made_ = false;
};

RunDestination destination_of_run(const std::string& recipe, const RunNames& names) {
  if (!names.dir.empty()) return {names.dir};
  const stdfs::path parent = names.parent.empty() ? stdfs::path("runs") / recipe : stdfs::path(names.parent);
  return names.name.empty() ? RunDestination{parent / date_time(), true} : RunDestination{parent / names.name};
}

RunFolder::RunFolder(Fs& fs, const RunDestination& place, std::string recipe, bool fresh)
    : fs_(fs), recipe_(std::move(recipe)), fresh_(fresh) {
  try {
    while (lock_ == nullptr) {
      claim(place);
      if (!made_) refuse_what_is_not_ours();  // throws if the folder is not Millrace's, before anything is written into it
      lock_ = Lock::take(path_);
    }
    refuse_what_is_not_ours();
    if (auto record = read_record(fs_, path_)) {
      is_run_ = true;
      record_ = *std::move(record);
    }
    if (is_run_ && !fresh_) refuse_another_recipe(record_, path_, recipe_);
    processes_ = lock_->processes();
    std::set<long> all = processes_;
    all.insert(::getpid());
    lock_->set_processes(all);
    settle_replacement();
  } catch (const FsError& error) {
    cannot_use(path_, error.what());
  }
}

RunFolder::~RunFolder() {
  // Does nothing if the folder was moved, because another folder may have its path now.
  if (lock_ == nullptr || !lock_->is_in(path_)) return;
  try {
    if (!staging_.empty()) fs_.remove_all(staging_);
    if (!has_begun_ && lock_->made()) stdfs::remove(path_ / run_files::kLock);
    if (!has_begun_ && made_) stdfs::remove(path_);  // removes only an empty folder
    if (has_begun_ && !has_saved_) {
      settle_replacement();
      if (!branch_.empty()) restore_branch(fs_, path_, record_, branch_);
    }
  } catch (const std::exception&) {  // an error is ignored, because the next process cleans up
  }
}

void RunFolder::claim(const RunDestination& place) {
  // "runs/a/" becomes "runs/a", because folders are compared by their paths.
  const stdfs::path folder = place.folder.has_filename() ? place.folder : place.folder.parent_path();
  path_ = folder;
  try {
    if (folder.has_parent_path()) fs_.create_directories(folder.parent_path());
  } catch (const FsError& error) {
    throw UsageError({"can't make the run folder " + path_.string(), error.what(), "choose another folder with --run"});
  }
  for (int i = 2; true; ++i) {
    // tells whether this process made the folder: if several processes try, only one succeeds
    made_ = ::mkdir(path_.c_str(), 0777) == 0;
    if (made_) return;
    const int error = errno;
    if (error == EEXIST && !place.takes_next_name && stdfs::is_directory(path_)) return;
    if (error != EEXIST || !place.takes_next_name) {
      throw UsageError({"can't make the run folder " + path_.string(),
                        error == EEXIST ? "a file of that name exists" : std::strerror(error),
                        "choose another folder with --run"});
    }
    path_ = folder.string() + "-" + std::to_string(i);
  }
}

void RunFolder::refuse_what_is_not_ours() const {
  const auto record = read_record(fs_, path_);
  std::vector<std::string> foreign;
  for (const char* name : run_files::kAll) {
    const stdfs::file_type type = type_of(path_ / name);
    if (type == stdfs::file_type::not_found) continue;
    const bool is_folder = name == std::string_view(run_files::kSnapshots) || name == std::string_view(run_files::kPictures) ||
                           name == std::string_view(run_files::kProfile) || name == std::string_view(run_files::kBranches);
    if (type != (is_folder ? stdfs::file_type::directory : stdfs::file_type::regular)) {
      cannot_use(path_, (path_ / name).string() + (is_folder ? " is not a folder" : " is not a regular file") +
                            (type == stdfs::file_type::symlink ? " but a link" : ""));
    }
    if (!record && (name != std::string_view(run_files::kLock) || !is_bare_lock(path_ / name))) foreign.emplace_back(name);
  }
  if (foreign.empty()) return;
  throw UsageError(
      {path_.string() + " holds files that a run would write, but no run of Millrace made them: " + joined_names(foreign),
       path_.string(), "choose another folder with --run, or move these files"});
}

bool RunFolder::has_snapshot() const {
  const auto found = snapshot::list(fs_, path_);
  return std::any_of(found.begin(), found.end(), [&](const snapshot::Found& each) { return snapshot::is_ours(fs_, each); });
}

void RunFolder::settle_replacement() {
  if (record_.replacement == RunRecord::Replacement::none) return;
  if (record_.replacement == RunRecord::Replacement::complete && has_snapshot()) {
    drop_old_run(fs_, path_, record_);
  } else {
    restore_old_run(fs_, path_, record_);
  }
}

stdfs::path RunFolder::staging() {
  if (!staging_.empty()) return staging_;
  const std::string name = std::string(kStaging) + std::to_string(::getpid());
  stdfs::path place = path_ / name;
  for (int i = 2; is_there(place); ++i) place = path_ / (name + "-" + std::to_string(i));
  fs_.create_directories(place);
  staging_ = place;
  fs_.create(place / kStagingMark)->close();
  return staging_;
}

void RunFolder::clear_leftovers() {
  snapshot::Keeper(fs_, path_).clear_leftovers(processes_, nullptr);
  const auto is_ours = [&](const std::string& name) {
    return record_.owns(name) || std::find(run_files::kAll.begin(), run_files::kAll.end(), name) != run_files::kAll.end();
  };
  for (const stdfs::path& below : {stdfs::path(), stdfs::path(run_files::kPictures), stdfs::path(run_files::kProfile)}) {
    if (!fs_.exists(path_ / below)) continue;
    for (const std::string& name : fs_.list(path_ / below)) {
      const stdfs::path path = path_ / below / name;
      const auto temporary = parse_temporary(name);
      const bool is_temporary = temporary && processes_.contains(temporary->process) &&
                                is_ours((below / temporary->name).string()) && type_of(path) == stdfs::file_type::regular;
      const bool is_staging = name.starts_with(kStaging) && path != staging_ && type_of(path) == stdfs::file_type::directory;
      // The folder may be empty because a process was killed just after it had made the folder, or just before it would have
      // removed the folder.
      const bool is_ours_now = is_staging && (is_there(path / kStagingMark) ||
                                              (processes_.contains(process_of_staging(name)) && fs_.list(path).empty()));
      if (is_temporary || is_ours_now) fs_.remove_all(path);
    }
  }
  lock_->set_processes({::getpid()});
}

std::vector<std::string> RunFolder::begin(std::optional<std::int64_t> branches_after) {
  std::vector<std::string> notices;
  if (!is_run_) refuse_what_is_not_ours();  // checked again, because the user may have put a file here since the start
  try {
    clear_leftovers();
    if (is_run_ && fresh_) {
      archive_old_run(fs_, path_, record_);
      notices.push_back("the old run in " + path_.string() +
                        " is replaced: it is deleted when the first new snapshot is on the disk");
    } else if (is_run_ && branches_after) {
      branch_ = archive_branch(fs_, path_, record_, *branches_after);
      if (!branch_.empty()) notices.push_back("later snapshots became a branch: --run " + branch_.string() + " resumes them");
    }
    has_begun_ = true;
    record_.recipe = recipe_;
    std::error_code gone;
    record_.started_in = stdfs::current_path(gone).string();
    record_.files.insert(run_files::kAll.begin(), run_files::kAll.end());
    record_.files.insert(next_kept_history(path_));
    write_record(fs_, path_, record_);
    if (!staging_.empty()) {
      for (const std::string& name : fs_.list(staging_)) {
        if (name != kStagingMark) keep(name);
      }
      fs_.remove_all(staging_);
      staging_.clear();
    }
  } catch (const FsError& error) {
    cannot_use(path_, error.what());
  }
  return notices;
}

// Marks a staged file as the run's. If the run finds a file in its folder that equals the staged file, that file belongs to the
// run from then on.
void RunFolder::keep(const std::string& staged) {
  const stdfs::path path = path_ / staged;
  const bool is_same = type_of(path) == stdfs::file_type::regular && fs_.read_file(path) == fs_.read_file(staging_ / staged);
  if (is_same && record_.files.insert(staged).second) write_record(fs_, path_, record_);
  if (!is_same) fs_.rename(staging_ / staged, own(staged));
}

stdfs::path RunFolder::own(const std::string& name) {
  look_after();
  stdfs::path path = path_ / name;
  if (record_.owns(name)) return path;
  if (is_there(path)) {
    throw UsageError({path.string() + " does not belong to this run, so it is not overwritten", path.string(),
                      "move it, or choose another folder with --run"});
  }
  record_.files.insert(name);
  write_record(fs_, path_, record_);
  return path;
}

void RunFolder::write(const char* name, const std::string& text) {
  look_after();
  write_atomically(fs_, own(name), text);
  written_[name] = text;
}

void RunFolder::remove(const std::string& name) {
  look_after();
  if (!record_.owns(name)) return;
  fs_.remove_all(path_ / name);
  record_.files.erase(name);
  write_record(fs_, path_, record_);
}

void RunFolder::look_after() {
  if (!has_begun_ || (lock_ != nullptr && lock_->is_in(path_))) return;
  // If the folder has neither lock nor run.json, it was made again by the save that is under way. Any other folder is foreign.
  if (is_there(path_ / run_files::kLock) || is_there(path_ / run_files::kRun)) {
    throw UsageError({"the run folder " + path_.string() + " was replaced by another one during the run",
                      "nothing more is written there",
                      "resume with --run and the folder to which this run was moved: it holds the saved state"});
  }
  fs_.create_directories(path_);
  lock_ = Lock::take(path_);
  write_record(fs_, path_, record_);
  for (const auto& [name, text] : written_) {
    if (!is_there(path_ / name)) write_atomically(fs_, path_ / name, text);
  }
  notice_ = "the run folder " + path_.string() +
            " was moved or deleted during the run: further snapshots are saved in a new folder of " +
            "that name; earlier files are in the moved folder";
}

std::string RunFolder::hold() {
  look_after();
  return std::exchange(notice_, "");
}

void RunFolder::saved() {
  has_saved_ = true;
  branch_.clear();
  if (record_.replacement == RunRecord::Replacement::none || lock_ == nullptr || !lock_->is_in(path_)) return;
  try {
    drop_old_run(fs_, path_, record_);
  } catch (const FsError&) {  // an error is ignored, because the next process deletes the old run
  }
}

std::string config_text(const config::Resolved& config) {
  const Json all = {{"values", config.values}, {"origins", config.origins}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

config::Resolved read_config(Fs& fs, const stdfs::path& run_folder) {
  const stdfs::path file = run_folder / run_files::kConfig;
  try {
    const Json all = Json::parse(fs.read_file(file), [](int depth, Json::parse_event_t, Json&) {
      constexpr int kDeepest = 64;  // limits the depth of recursion
      if (depth > kDeepest) throw std::runtime_error("it is nested too deeply");
      return true;
    });
    config::Resolved config;
    config.values = all.at("values");
    if (all.contains("origins")) config.origins = all["origins"].get<std::map<std::string, std::string>>();
    return config;
  } catch (const std::exception& error) {
    throw SnapshotError({"can't read the config of the run in " + run_folder.string(), file.string() + ": " + error.what(),
                         "give the folder of a run that millrace train wrote"});
  }
}

Json known_values(const config::Schema& schema, const Json& values) {
  Json known = Json::object();
  for (const config::Leaf& leaf : schema.leaves) {
    const auto place = config::pointer_to(leaf.path);
    if (values.contains(place)) known[leaf.path] = values.at(place);
  }
  return known;
}

std::vector<stdfs::path> folders_of_run(Fs& fs, const stdfs::path& run_folder) {
  std::vector<stdfs::path> folders = {stdfs::path()};
  const auto record = read_record(fs, run_folder);
  if (record && !record->started_in.empty()) folders.emplace_back(record->started_in);
  return folders;
}

stdfs::path run_with_snapshots(Fs& fs, const stdfs::path& run_folder) {
  const auto record = read_record(fs, run_folder);
  const bool is_replaced = record && !record->old_run.empty() && snapshot::list(fs, run_folder).empty();
  return is_replaced ? run_folder / record->old_run : run_folder;
}

void refuse_another_recipe(const RunRecord& record, const stdfs::path& run_folder, const std::string& recipe) {
  if (record.recipe.empty() || record.recipe == recipe) return;
  throw UsageError({run_folder.string() + " is a run of recipe " + record.recipe + ", not of " + recipe,
                    (run_folder / run_files::kRun).string(),
                    "choose another folder with --run, or replace that run here with --fresh"});
}

RunState state_of_run(const Json& summary, std::int64_t newest_step) {
  const auto text = [&](const char* key) {
    const Json value = summary.is_object() ? summary.value(key, Json()) : Json();
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  const std::string reason = text("exit_reason");
  if (reason == "error") return RunState::failed;
  const Json steps = summary.is_object() ? summary.value("steps", Json()) : Json();
  const bool is_of_newest = steps.is_number() && steps >= newest_step;
  if (!reason.empty() && reason != "signal" && is_of_newest) return RunState::finished;
  return newest_step > 0 ? RunState::stopped : RunState::unsaved;
}

}  // namespace millrace
