#include "millrace/data/sources/detail/file_list.h"

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/input_file.h"

namespace millrace::data::detail {

std::string count_of_files(std::span<const std::filesystem::path> files, const std::string& what) {
  if (files.empty()) {
    throw DataError({.what = "the list of " + what + " is empty", .where = "", .next = "name at least one file"});
  }
  for (const std::filesystem::path& path : files) {
    const InputFile opens(path);
    doing_moved();
  }
  return std::to_string(files.size()) + (files.size() == 1 ? " file" : " files");
}

}  // namespace millrace::data::detail
