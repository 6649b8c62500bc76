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

// By the suffix; UsageError lists those there are. `flag`: "--input".
[[nodiscard]] TensorFormat tensor_format(const std::filesystem::path& path, const std::string& flag);

// Not thread-safe. All functions throw DataError naming the file.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }  // with their whole shapes
  // Rows [first, first + count) of the first axis of fields()[index], contiguous; count -1 = the whole tensor. Only these are
  // read, except from .pt and from compressed or Fortran-ordered .npz members, whose tensors are kept whole.
  [[nodiscard]] virtual at::Tensor read(std::size_t index, std::int64_t first, std::int64_t count) = 0;

 protected:
  std::vector<Field> fields_;
};

// `unnamed`: the name of a .npy file's array. Of HDF5 the data sets, without the first "/".
[[nodiscard]] std::unique_ptr<TensorReader> open_tensors(const std::filesystem::path& path, TensorFormat format,
                                                         const std::string& unnamed);

// Rows come in order, and the file appears whole at the end or not at all; until then the rows are in files beside it. A .npz is
// made with its largest array in memory, all others without.
class TensorWriter {
 public:
  TensorWriter(std::filesystem::path path, TensorFormat format);
  ~TensorWriter();
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;
  // Contiguous CPU tensors, each with an axis of rows unless this is called once. RecipeError when names, types or shapes differ
  // from those before.
  void append(const Tensors& rows);
  // What was written, with whole shapes. DataError: the kind of file can't hold it, the disk fails.
  std::vector<Field> finish();

 private:
  struct Part;
  std::filesystem::path path_;
  TensorFormat format_;
  std::vector<std::unique_ptr<Part>> parts_;  // in order of name
};

}  // namespace millrace::cli
