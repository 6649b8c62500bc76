// A file of training data open for reading, with errors that name it. Const and thread-safe: reads are by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace millrace::data::detail {

class InputFile {
 public:
  // DataError when it can't be opened or is not a regular file (a pipe would block for ever).
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }  // when it was opened
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // stays this object's
  // Exactly these bytes; DataError when the file ends before or the disk fails.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace millrace::data::detail
