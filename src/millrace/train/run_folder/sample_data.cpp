#include "millrace/train/run_folder/sample_data.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "millrace/base/error.h"

namespace millrace {
namespace {

// The file that marks a part folder as Millrace's. It is made first and removed last, so it distinguishes a killed process's
// leftovers from the user's files.
constexpr const char* kPartMarker = "made-by-millrace";

// The right to work in a part folder, which one process has at a time. It is a lock, so the system releases it when a process is
// killed.
class Turn {
 public:
  explicit Turn(const std::filesystem::path& part)
      : descriptor_(::open(part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {}
  Turn(Turn&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  // Takes the lock. Returns 0, or errno if that failed.
  [[nodiscard]] int lock(int mode) const noexcept {
    while (::flock(descriptor_, LOCK_EX | mode) != 0) {
      if (errno != EINTR) return errno;
    }
    return 0;
  }
  // True if the locked folder is still in its place. False if it has been removed or replaced since it was opened.
  [[nodiscard]] bool holds(const std::filesystem::path& part) const noexcept {
    struct stat locked {};
    struct stat there {};
    return ::fstat(descriptor_, &locked) == 0 && ::lstat(part.c_str(), &there) == 0 && locked.st_dev == there.st_dev &&
           locked.st_ino == there.st_ino;
  }

 private:
  int descriptor_;
};

[[noreturn]] void in_the_way(const std::filesystem::path& part, const std::string& why) {
  throw DataError({part.string() + " is in the way of the sample data", why, "rename or remove it"});
}

// `target` without symbolic links and without a trailing slash, so that the part folder is on the same file system as the target.
std::filesystem::path plain_path(const std::filesystem::path& target) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(std::filesystem::absolute(target));
  return path.has_filename() ? path : path.parent_path();
}

// Throws for folders that can't be replaced by a rename: a mount point, and the current folder, because the shell would then be
// in a folder that no longer exists.
void refuse_fixed_folder(const std::filesystem::path& target) {
  std::error_code ignored;
  struct stat folder {};
  struct stat parent {};
  const bool exists = ::stat(target.c_str(), &folder) == 0 && ::stat(target.parent_path().c_str(), &parent) == 0;
  const bool is_current = std::filesystem::equivalent(target, std::filesystem::current_path(ignored), ignored);
  if (!exists || (!is_current && folder.st_dev == parent.st_dev)) return;
  throw DataError({"sample data can't replace the folder " + target.string(),
                   is_current ? "it is the current folder" : "another file system is mounted there",
                   "name a new folder below it"});
}

// Makes the part folder. Returns false if that failed and the caller should try again.
bool make_part_folder(Fs& fs, const std::filesystem::path& part, bool last_try) {
  std::error_code code;
  const auto type = std::filesystem::symlink_status(part, code).type();
  if (type != std::filesystem::file_type::not_found && type != std::filesystem::file_type::directory)
    in_the_way(part, "it is not a folder");
  try {
    fs.create_directories(part);
    return true;
  } catch (const FsError& error) {
    // The process that has the turn may be removing the folder at this moment. In /proc, making a folder gives the error ENOENT
    // for ever, so the number of tries is limited.
    const bool gone = error.error_number() == ENOENT || error.error_number() == EEXIST || error.error_number() == ENOTDIR;
    if (last_try || !gone || !std::filesystem::is_directory(part.parent_path(), code)) throw;
    return false;
  }
}

bool is_ours(Fs& fs, const std::filesystem::path& part) {
  const std::vector<std::string> names = fs.list(part);
  return names.empty() || std::find(names.begin(), names.end(), kPartMarker) != names.end();
}

// Removes the part folder of a process that was killed after the rename.
void remove_leftover(Fs& fs, const std::filesystem::path& part) {
  const Turn turn(part);
  if (turn.is_open() && turn.lock(LOCK_NB) == 0 && turn.holds(part) && is_ours(fs, part)) fs.remove_all(part);
}

// Waits for the turn to make `target`. nullopt if another process made `target` meanwhile.
std::optional<Turn> take_turn(Fs& fs, const std::filesystem::path& target, const std::filesystem::path& part,
                              const std::function<void()>& report) {
  constexpr int kTries = 1000;  // failed tries in a row
  int failures = 0;
  for (bool reported = false;;) {
    if (has_sample_data(fs, target)) {
      remove_leftover(fs, part);
      return std::nullopt;
    }
    if (!make_part_folder(fs, part, failures == kTries)) {
      ++failures;
      continue;
    }
    failures = 0;
    Turn turn(part);
    if (!turn.is_open()) {
      if (errno == ENOENT) continue;
      throw FsError("open folder", part, errno);
    }
    int failure = turn.lock(LOCK_NB);
    if (failure == EWOULDBLOCK) {
      if (!std::exchange(reported, true)) report();
      failure = turn.lock(0);
    }
    if (failure != 0) throw FsError("lock", part, failure);
    if (turn.holds(part) && !has_sample_data(fs, target)) return turn;
  }
}

// Empties the part folder. The marker is removed last.
void clear_part(Fs& fs, const std::filesystem::path& part) {
  if (!is_ours(fs, part)) in_the_way(part, "it is not empty, and Millrace did not make it");
  for (const std::string& name : fs.list(part)) {
    if (name != kPartMarker) fs.remove_all(part / name);
  }
}

void remove_part(Fs& fs, const std::filesystem::path& part) {
  try {
    clear_part(fs, part);
    fs.remove_all(part);
  } catch (const std::exception&) {  // ignored, because the data is complete and only the cleaning failed
  }
}

void mark_part(Fs& fs, const std::filesystem::path& part) {
  const std::unique_ptr<WritableFile> marker = fs.create(part / kPartMarker);
  marker->sync();
  marker->close();
  fs.sync_directory(part);
}

void sync_tree(Fs& fs, const std::filesystem::path& folder) {
  for (const std::string& name : fs.list(folder)) {
    const std::filesystem::path path = folder / name;
    if (std::filesystem::is_directory(path)) {
      sync_tree(fs, path);
    } else {
      const std::unique_ptr<WritableFile> file = fs.append(path);
      file->sync();
      file->close();
    }
  }
  fs.sync_directory(folder);
}

// Renames `folder` to `target`. Returns false if another process made `target` first.
bool publish(Fs& fs, const std::filesystem::path& folder, const std::filesystem::path& target) {
  sync_tree(fs, folder);
  try {
    fs.rename(folder, target);
  } catch (const FsError&) {
    if (has_sample_data(fs, target)) return false;
    throw;
  }
  fs.sync_directory(target.parent_path());
  return true;
}

}  // namespace

bool has_sample_data(Fs& fs, const std::filesystem::path& target) {
  return fs.exists(target) && (!std::filesystem::is_directory(target) || !fs.list(target).empty());
}

bool make_sample_data(Fs& fs, const std::filesystem::path& target, const SampleDataMaker& maker) {
  const std::filesystem::path place = plain_path(target);
  refuse_fixed_folder(place);
  const std::filesystem::path part = place.parent_path() / ("." + place.filename().string() + ".millrace-part");
  const auto turn = take_turn(fs, place, part, [&] {
    if (maker.report) maker.report("another process is making the sample data in " + target.string() + "; waiting for it");
  });
  if (!turn) return false;
  clear_part(fs, part);
  if (maker.begin) maker.begin();
  bool made = false;
  try {
    mark_part(fs, part);
    // A new folder, because a child of a killed process may live a moment longer and write into the folder of that process.
    const std::filesystem::path folder = part / std::to_string(::getpid());
    fs.create_directories(folder);
    maker.make(folder);
    made = publish(fs, folder, place);
  } catch (...) {
    remove_part(fs, part);
    throw;
  }
  remove_part(fs, part);
  return made;
}

}  // namespace millrace
