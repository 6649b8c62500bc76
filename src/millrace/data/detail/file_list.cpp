#include "millrace/data/detail/file_list.h"

#include <fcntl.h>
#include <unistd.h>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"

namespace millrace::data::detail {

std::string fingerprint_of_files(std::span<const std::filesystem::path> files, const std::string& what) {
  if (files.empty()) {
    throw DataError({.what = "the list of " + what + " is empty", .where = "", .next = "name at least one file"});
  }
  Sha256 hash;
  for (const std::filesystem::path& path : files) {
    const InputFile file(path);
    hash.update(path.string() + '\0' + std::to_string(file.size()) + ' ' + std::to_string(file.modified_ns()) + '\n');
  }
  return std::to_string(files.size()) + (files.size() == 1 ? " file " : " files ") + hash.hex().substr(0, 16);
}

void will_need_file(const std::filesystem::path& path) noexcept {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;  // the read will say why
  ::posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
  ::close(file);
}

}  // namespace millrace::data::detail
