// A file to which a run appends. A failed write never stops the run: the first failure is reported, later failures are counted.
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

// The file is opened at the first write, and again after a failure, so that writing continues once the disk has space. Not
// thread-safe.
class LogFile {
 public:
  // `room` is a number of bytes after the file's end that are reserved for write_last_line(), if the file system can reserve them
  // (fallocate). The last line then has space even if other programs fill the disk.
  LogFile(Fs& fs, std::filesystem::path path, Warn warn, std::uint64_t room = 0);
  ~LogFile();  // reports the number of lost writes if there was more than one
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends the bytes as they are. Returns false if that failed; some of them may then be in the file.
  bool write(std::string_view bytes);
  // Appends a line. `line` must not end with a newline. If a crash or a failed write cut the previous line, a newline is written
  // first.
  bool write_line(std::string_view line);
  bool write_last_line(std::string_view line);  // Like write_line(), but may use the space that was reserved (`room`).
  // Continues in another file, to which later lines are appended.
  void move_to(std::filesystem::path path);
  // Runs the caller's own work on the same file. If `work` throws an FsError, this counts as a failed write.
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
  std::uint64_t granted_ = 0;  // bytes that lines may still take before space is reserved again
  std::unique_ptr<WritableFile> file_;
  bool line_is_cut_ = false;
  std::int64_t failures_ = 0;
};

}  // namespace millrace::format
