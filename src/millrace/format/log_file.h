// A file that a run appends to and that must never stop it: the first failure is reported, later ones are counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/fs.h"

namespace millrace::format {

using Warn = std::function<void(const std::string&)>;

// Opened at the first write and again after a failure, so that writing goes on once there is space. Not thread-safe.
class LogFile {
 public:
  // `room`: bytes of the disk, behind the file's end, that lines leave to write_last_line(), where the file system can keep them
  // for a file (fallocate): a disk that others fill then has room for the last line alone.
  LogFile(Fs& fs, std::filesystem::path path, Warn warn, std::uint64_t room = 0);
  ~LogFile();  // says how many writes were lost when there was more than one
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends the bytes as they are. False when that failed; some of them may be in the file then.
  bool write(std::string_view bytes);
  // Appends a line. `line` has no newline of its own; a line that a crash or a failure cut is ended first.
  bool write_line(std::string_view line);
  bool write_last_line(std::string_view line);  // takes the room
  // Goes on in another file.
  void move_to(std::filesystem::path path);
  // For work of the owner on the same file: a failure inside counts like a failed write.
  bool guarded(const std::function<void()>& work);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::int64_t failures() const noexcept { return failures_; }

 private:
  bool append_line(std::string_view line, bool takes_room);
  void keep_room(std::uint64_t next);
  void failed(const FsError& error);
  Fs& fs_;
  std::filesystem::path path_;
  Warn warn_;
  const std::uint64_t room_;
  std::uint64_t granted_ = 0;  // bytes that lines may take before the file system is asked again
  std::unique_ptr<WritableFile> file_;
  bool line_is_cut_ = false;
  std::int64_t failures_ = 0;
};

}  // namespace millrace::format
