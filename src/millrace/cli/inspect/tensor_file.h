// Files of named tensors, which `predict` reads and writes row by row: .safetensors, .pt, .npy, .npz, HDF5.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/core/batch.h"

namespace millrace::cli {

enum class TensorFormat : std::uint8_t { safetensors, pt, npy, npz, hdf5 };

// The format that the file's suffix means. Throws UsageError with a list of the valid suffixes. `flag`: the flag in the message,
// such as "--input".
[[nodiscard]] TensorFormat tensor_format(const std::filesystem::path& path, const std::string& flag);

// Reads the tensors of a file. Not thread-safe. If the file can't be read, read() throws DataError with the file's name.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }  // the tensors with their complete shapes
  // Reads rows [first, first + count) of fields()[index], along the first axis, into contiguous memory; count = -1 reads the
  // whole tensor. Only these rows are read from the file. Exceptions are .pt files and compressed or Fortran-ordered members of
  // .npz: the reader keeps their tensors in memory as a whole.
  [[nodiscard]] virtual at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) = 0;

 protected:
  std::vector<Field> fields_;
};

// Opens a file. `unnamed`: the name that the array of a .npy file gets. The fields of an HDF5 file are its data sets, without the
// first "/".
[[nodiscard]] std::unique_ptr<TensorReader> open_tensors(const std::filesystem::path& path, TensorFormat format,
                                                         const std::string& unnamed);

// Writes tensors to a file, rows in order. The complete file appears at the end or not at all. Until the end, the rows are in
// temporary files in the same folder. Writing a .npz takes memory for its largest array; other formats take none.
class TensorWriter {
 public:
  TensorWriter(std::filesystem::path path, TensorFormat format);
  ~TensorWriter();
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;
  // Appends contiguous tensors in CPU memory. Each tensor must have an axis of rows, unless append() is called only once. Throws
  // RecipeError if names, types or shapes differ from those of the first call.
  void append(const Tensors& rows);
  // Completes the file and returns its fields with their complete shapes. Throws DataError if the format can't hold them or the
  // disk fails.
  std::vector<Field> finish();

 private:
  struct Part;
  std::filesystem::path path_;
  TensorFormat format_;
  std::vector<std::unique_ptr<Part>> parts_;  // sorted by name
};

}  // namespace millrace::cli
