#include "millrace/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"

namespace millrace {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    const int error_number = errno;
    throw DataError({.what = quoted(path_.string()) + " can't be opened: " + reason(error_number),
                     .where = "",
                     .next = remedy_for(error_number)});
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw DataError({.what = quoted(path_.string()) + " is not a regular file", .where = "", .next = "name a file"});
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ns_ = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error_number = errno;
      throw DataError({.what = quoted(path_.string()) + " can't be read: " + reason(error_number),
                       .where = "byte " + std::to_string(offset),
                       .next = remedy_for(error_number)});
    }
    if (got == 0) {
      throw DataError(
          {.what = quoted(path_.string()) + " has become shorter: " + std::to_string(out.size()) + " bytes are missing",
           .where = "byte " + std::to_string(offset),
           .next = "don't change data while it is read"});
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::span<const std::byte> InputFile::read_all(std::vector<std::byte>& buffer) const {
  if (buffer.size() < size_) buffer.resize(size_);
  const std::span<std::byte> whole = std::span(buffer).first(size_);
  read(0, whole);
  return whole;
}

void will_need_file(const std::filesystem::path& path) noexcept {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;  // a later read of the file reports the error
  ::posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
  ::close(file);
}

}  // namespace millrace
