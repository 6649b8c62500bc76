// An input file that may be closed between uses. The file stays open while few such files exist. If such files use more than
// half of the process's descriptors, each use opens its file again and detects whether the file was replaced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "millrace/base/input_file.h"

namespace millrace::hdf5::detail {

class LentFile {
 public:
  explicit LentFile(const std::filesystem::path& path);  // opens the file; throws DataError as InputFile does
  ~LentFile();
  LentFile(const LentFile&) = delete;
  LentFile& operator=(const LentFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }               // size when the file was first opened
  [[nodiscard]] std::int64_t modified_ns() const noexcept { return modified_ns_; }  // modification time when first opened
  // Closes the file if too many such files are open. Call it before the object is shared between threads.
  void return_if_many();
  // Calls use(file). Throws DataError if the file must be reopened and is gone or has changed.
  template <class Use>
  auto with(Use use) const {
    if (file_) return use(*file_);
    const InputFile again(path_);
    check_same(again);
    return use(again);
  }

 private:
  void check_same(const InputFile& again) const;
  std::filesystem::path path_;
  std::optional<InputFile> file_;
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace millrace::hdf5::detail
