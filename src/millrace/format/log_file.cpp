#include "millrace/format/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

namespace millrace::format {
namespace {

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

// Reserves this many bytes of the disk after the file's end; the file's size stays the same. Returns an errno, or 0 if the bytes
// are reserved.
int reserve(const std::filesystem::path& path, std::uint64_t bytes) noexcept {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return errno;
  struct stat info {};
  int error = ::fstat(file, &info) == 0 ? 0 : errno;
  if (error == 0) {
    do {
      error = ::fallocate(file, FALLOC_FL_KEEP_SIZE, info.st_size, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    } while (error == EINTR);
  }
  ::close(file);
  return error;
}

}  // namespace

LogFile::LogFile(Fs& fs, std::filesystem::path path, Warn warn, std::uint64_t room)
    : fs_(fs), path_(std::move(path)), warn_(std::move(warn)), room_(room) {}

LogFile::~LogFile() {
  if (failures_ > 1 && warn_) warn_(std::to_string(failures_) + " writes to " + path_.string() + " failed in total");
}

bool LogFile::write(std::string_view bytes) {
  return guarded([&] {
    if (!file_) {
      line_is_cut_ = ends_inside_a_line(path_);
      file_ = fs_.append(path_);
    }
    file_->write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  });
}

bool LogFile::write_line(std::string_view line) { return append_line(line, false); }

bool LogFile::write_last_line(std::string_view line) { return append_line(line, true); }

bool LogFile::append_line(std::string_view line, bool takes_room) {
  if (!file_ && !write("")) return false;  // this call opens the file and finds out whether its last line was cut
  std::string text = line_is_cut_ ? "\n" : "";
  text.append(line).append("\n");
  if (!takes_room && !guarded([&] { keep_room(text.size()); })) return false;
  if (!write(text)) return false;
  line_is_cut_ = false;
  return true;
}

// Renews the reservation before `next` bytes are written; throws if the disk is full. If the file system does not support
// reservations, the bytes are written without one.
void LogFile::keep_room(std::uint64_t next) {
  if (room_ == 0) return;
  constexpr std::uint64_t kAhead = 16U << 10U;
  if (granted_ < next) {
    int error = reserve(path_, next + kAhead + room_);
    granted_ = next + kAhead;
    if (error == ENOSPC || error == EDQUOT) {
      error = reserve(path_, next + room_);
      granted_ = next;
    }
    if (error == ENOSPC || error == EDQUOT) throw FsError("write", path_, error);
  }
  granted_ -= next;
}

void LogFile::move_to(std::filesystem::path path) {
  file_.reset();
  path_ = std::move(path);
  granted_ = 0;
}

bool LogFile::guarded(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const FsError& error) {
    failed(error);
    return false;
  }
}

void LogFile::failed(const FsError& error) {
  file_.reset();
  granted_ = 0;
  if (++failures_ == 1 && warn_) {
    warn_("can't write " + path_.string() + ": " + error.what() + "; the run continues; free space or check the folder");
  }
}

}  // namespace millrace::format
