#include "millrace/data/detail/file_list.h"

#include <fcntl.h>
#include <unistd.h>

#include "millrace/base/error.h"
#include "millrace/base/input_file.h"

namespace millrace::data::detail {

std::string count_of_files(std::span<const std::filesystem::path> files, const std::string& what) {
  if (files.empty()) {
    throw DataError({.what = "the list of " + what + " is empty", .where = "", .next = "name at least one file"});
  }
  for (const std::filesystem::path& path : files) const InputFile opens(path);
  return std::to_string(files.size()) + (files.size() == 1 ? " file" : " files");
}

void will_need_file(const std::filesystem::path& path) noexcept {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return;  // the read will say why
  ::posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
  ::close(file);
}

}  // namespace millrace::data::detail
