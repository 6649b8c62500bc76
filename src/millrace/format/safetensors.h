// Safetensors files: a JSON header followed by named arrays, read by most libraries that hold weights.
//
//   8 bytes   length n of the header, little endian
//   n bytes   {"<name>": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ..., "__metadata__": {"key": "text"}}
//   rest      the arrays' bytes, row-major, little endian, without holes
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/fs.h"

namespace millrace::format {

using Metadata = std::map<std::string, std::string>;

// Returns the format's name for a dtype ("F32"); nullopt for a dtype that the format lacks (c128).
[[nodiscard]] std::optional<std::string_view> safetensors_name(DType dtype) noexcept;

// Returns the row-major bytes of tensor `index` of the list given to the writer. The bytes are valid until the next call.
using TensorBytes = std::function<std::span<const std::byte>(std::size_t index)>;

struct WrittenSafetensors {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;                // checksum of the whole file
  std::uint32_t header_crc32c = 0;         // checksum of all bytes before the first array
  std::vector<std::uint32_t> tensor_crcs;  // checksum of each tensor, in the order of `tensors`
};

// Writes a whole file; the caller syncs and closes. Arrays are requested one at a time, so memory use stays flat. Equal tensors
// give equal bytes, whatever their order in `tensors`. The header is sorted by name. The arrays are sorted by element size,
// largest first so that each is aligned, and then by name. Field::shape is the whole shape of a tensor. Throws DataError if a
// tensor can't be stored (name, dtype, size), and FsError if writing fails.
WrittenSafetensors write_safetensors(WritableFile& file, std::span<const Field> tensors, const TensorBytes& bytes_of,
                                     const Metadata& metadata = {});
// Returns the size of the file that write_safetensors() writes. Throws DataError as that function does.
[[nodiscard]] std::uint64_t safetensors_bytes(std::span<const Field> tensors, const Metadata& metadata = {});

struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t offset = 0;  // where its bytes begin, from the beginning of the file
  std::uint64_t bytes = 0;
};

// A file open for reading. The constructor reads and checks the whole header. Afterwards every tensor is known to lie inside the
// file, without overlap or gap, with a size that fits its shape. Memory is bounded by the size of the file. Each DataError names
// the file and what is wrong with it.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }  // sorted by name
  [[nodiscard]] const StoredTensor* find(std::string_view name) const noexcept;
  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint32_t header_crc32c() const noexcept { return header_crc32c_; }
  // Reads a whole tensor with pread; `into` has the tensor's size. Any thread may call it. Throws DataError if the file has
  // shrunk or reading fails.
  void read(const StoredTensor& tensor, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint32_t header_crc32c_ = 0;
  std::vector<StoredTensor> tensors_;
  Metadata metadata_;
};

}  // namespace millrace::format
