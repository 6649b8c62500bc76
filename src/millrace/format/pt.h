// Reads files of Python's torch.save as data: tensors and plain values in dicts, lists, tuples and the attributes of objects. No
// function named in a file is called, and an entry that needs a call is rejected by name (detail/pickle.h). Reads files of torch
// 1.6 and later: a zip archive of data.pkl and a member for each storage. TorchScript archives are rejected, because they hold
// code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/safetensors.h"

namespace millrace {
class InputFile;
}

namespace millrace::format {

// A tensor of a file: a view of a storage.
struct PtTensor {
  std::string name;  // keys and indices on the path to it, joined by '.'; "tensor" if the file is a single tensor
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::int64_t> strides;         // distances in elements, not negative
  std::size_t storage = 0;                   // index of the tensor's storage in the file
  std::uint64_t first = 0;                   // index of the tensor's first element in the storage
  std::uint64_t bytes = 0;                   // number of bytes of the elements in row-major order
  bool conjugated = false, negated = false;  // operations that torch left to the reader of the elements; read() applies them
};

// Returns true if the elements are stored in the order in which read() returns them.
[[nodiscard]] bool is_row_major(const PtTensor& tensor) noexcept;

// A number, text, truth value or null stored next to the tensors.
struct PtValue {
  std::string name;
  Json value;
};

// An open file. The constructor reads and checks everything but the elements. Afterwards every tensor lies inside its storage
// and every storage inside the file, and all tensors together cover at most 16 times the file's size. Memory is bounded by the
// size of the file. Used by one thread at a time. Each DataError names the file and what is wrong with it.
class PtFile {
 public:
  explicit PtFile(const std::filesystem::path& path);
  ~PtFile();
  PtFile(PtFile&& other) noexcept;
  PtFile& operator=(PtFile&&) = delete;
  PtFile(const PtFile&) = delete;
  PtFile& operator=(const PtFile&) = delete;

  [[nodiscard]] const std::vector<PtTensor>& tensors() const noexcept { return tensors_; }  // sorted by name
  [[nodiscard]] const std::vector<PtValue>& values() const noexcept { return values_; }     // sorted by name
  [[nodiscard]] const PtTensor* find(std::string_view name) const noexcept;
  // Reads the tensor in row-major order; `into` has tensor.bytes bytes. Checks the storage's CRC-32.
  void read(const PtTensor& tensor, std::span<std::byte> into);
  // Reads a part, [first, first + into.size()), of the bytes that read() yields. If the tensor is row-major, only this part is
  // read from the file; the part must consist of whole elements. For any other tensor the part must be the whole tensor.
  void read_part(const PtTensor& tensor, std::uint64_t first, std::span<std::byte> into);

 private:
  struct Storage {
    std::string member;
    std::uint64_t offset = 0;  // offset in the file
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
    bool checked = false;
  };
  void check(Storage& storage);
  std::unique_ptr<InputFile> file_;
  std::vector<Storage> storages_;
  std::vector<PtTensor> tensors_;
  std::vector<PtValue> values_;
};

// Returns true if the file begins like a zip archive, as torch.save writes it. The file's name does not matter.
[[nodiscard]] bool looks_like_pt(const std::filesystem::path& path) noexcept;

// Writes the file that torch.save writes for an OrderedDict of tensors; torch.load reads it with weights_only=True. Elements
// begin at multiples of 64 bytes, so that the file can be mapped. Equal tensors in equal order give equal bytes. Arrays are
// requested one at a time. The caller syncs and closes. Throws DataError if a tensor can't be stored (name, size), and FsError
// if writing fails.
void write_pt(WritableFile& file, std::span<const Field> tensors, const TensorBytes& bytes_of);

}  // namespace millrace::format
