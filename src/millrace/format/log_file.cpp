#include "millrace/format/log_file.h"

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

}  // namespace

LogFile::LogFile(Fs& fs, std::filesystem::path path, Warn warn) : fs_(fs), path_(std::move(path)), warn_(std::move(warn)) {}

LogFile::~LogFile() {
  if (failures_ > 1 && warn_) warn_(std::to_string(failures_) + " writes to " + path_.string() + " failed in all");
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

bool LogFile::write_line(std::string_view line) {
  if (!file_ && !write("")) return false;  // opens, which tells whether a line was cut
  std::string text = line_is_cut_ ? "\n" : "";
  text.append(line).append("\n");
  if (!write(text)) return false;
  line_is_cut_ = false;
  return true;
}

void LogFile::move_to(std::filesystem::path path) {
  file_.reset();
  path_ = std::move(path);
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
  if (++failures_ == 1 && warn_) {
    warn_("can't write " + path_.string() + ": " + error.what() + "; the run goes on, free space or check the folder");
  }
}

}  // namespace millrace::format
