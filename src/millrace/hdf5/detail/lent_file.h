// A file that stays open while there are few of them: with more than half of the process's descriptors in use this way, each use
// opens its file again, and notices when it is another one by then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "millrace/base/input_file.h"

namespace millrace::hdf5::detail {

class LentFile {
 public:
  explicit LentFile(const std::filesystem::path& path);  // opens it; DataError as InputFile
  ~LentFile();
  LentFile(const LentFile&) = delete;
  LentFile& operator=(const LentFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }               // when it was opened first
  [[nodiscard]] std::int64_t modified_ns() const noexcept { return modified_ns_; }  // then
  // Closes it when too many are open. Before the object is shared between threads.
  void return_if_many();
  // Calls use(file). DataError when the file has to be opened again and is gone or has changed.
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
