// An open file of training data; its errors name the file. Const and thread-safe, because each read states its own offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace millrace {

class InputFile {
 public:
  // Opens the file. Throws DataError if it can't be opened or is not a regular file; a pipe, for example, would block for ever.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }               // the file's size when it was opened
  [[nodiscard]] std::int64_t modified_ns() const noexcept { return modified_ns_; }  // modification time when it was opened
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  // this object still owns the descriptor
  // Reads exactly out.size() bytes from `offset`. Throws DataError if the file ends earlier or the disk fails.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // Reads the whole file, with the size that it had when it was opened. `buffer` grows when needed and never shrinks, so keep
  // one buffer per thread.
  std::span<const std::byte> read_all(std::vector<std::byte>& buffer) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

// Advises the system that the file will be read soon (posix_fadvise); never fails.
void will_need_file(const std::filesystem::path& path) noexcept;

}  // namespace millrace
