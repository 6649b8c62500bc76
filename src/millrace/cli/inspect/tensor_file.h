// Files of named tensors that predict reads and writes row by row: .safetensors, .pt, .npy, .npz, HDF5.
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

// The format of a file's suffix; UsageError lists the valid ones. `flag`: "--input".
[[nodiscard]] TensorFormat tensor_format(const std::filesystem::path& path, const std::string& flag);

// Not thread-safe. All functions throw DataError naming the file.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }  // with their whole shapes
  // Reads rows [first, first + count) of the first axis of fields()[index], contiguous; count -1 = the whole tensor. Only these
  // rows are read, except from .pt and from compressed or Fortran-ordered .npz members, which are kept in memory whole.
  [[nodiscard]] virtual at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) = 0;

 protected:
  std::vector<Field> fields_;
};

// `unnamed`: the name for a .npy file's array. For HDF5 the fields are the data sets, without the first "/".
[[nodiscard]] std::unique_ptr<TensorReader> open_tensors(const std::filesystem::path& path, TensorFormat format,
                                                         const std::string& unnamed);

// Rows are appended in order. The file appears whole at the end or not at all; until then the rows are in files next to it.
// Writing a .npz needs memory for its largest array, other formats need no memory.
class TensorWriter {
 public:
  TensorWriter(std::filesystem::path path, TensorFormat format);
  ~TensorWriter();
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;
  // Appends contiguous CPU tensors, each with an axis of rows unless this is called once. RecipeError if names, types or shapes
  // differ from the first call's.
  void append(const Tensors& rows);
  // Completes the file and returns its fields, with whole shapes. DataError if the format can't hold them or the disk fails.
  std::vector<Field> finish();

 private:
  struct Part;
  std::filesystem::path path_;
  TensorFormat format_;
  std::vector<std::unique_ptr<Part>> parts_;  // in order of name
};

}  // namespace millrace::cli
