// Maps a file into memory. The system reads the bytes when they are accessed, and may evict them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace millrace {

class MappedFile {
 public:
  // Maps the first `size` bytes; the file must not become shorter than that while this object exists. Throws FsError.
  MappedFile(const std::filesystem::path& path, std::uint64_t size);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  void* memory_ = nullptr;
  std::uint64_t size_;
};

}  // namespace millrace
