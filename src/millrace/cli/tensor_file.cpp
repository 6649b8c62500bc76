#include "millrace/cli/tensor_file.h"

#include <ATen/ops/empty.h>

#include "millrace/base/error.h"
#include "millrace/format/safetensors.h"
#include "millrace/train/feed.h"

namespace millrace::cli {
namespace {

constexpr DType kDTypes[] = {DType::boolean, DType::u8,  DType::i8,   DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                             DType::u64,     DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
  for (const DType dtype : kDTypes) {
    if (scalar_type_of(dtype) == tensor.scalar_type()) {
      return dtype;
    }
  }
  throw DataError({"tensor \"" + name + "\" has a type that no file format here knows: " + std::string(tensor.dtype().name()),
                   "the recipe's predictions", "let Recipe::predict return plain tensors"});
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

Tensors read_tensors(const std::filesystem::path& path) {
  const format::SafetensorsFile file(path);
  Tensors tensors;
  for (const format::StoredTensor& stored : file.tensors()) {
    at::Tensor tensor = at::empty(stored.shape, at::TensorOptions().dtype(scalar_type_of(stored.dtype)));
    file.read(stored, bytes_of(tensor));
    tensors.emplace(stored.name, std::move(tensor));
  }
  return tensors;
}

void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<at::Tensor> values;
  std::vector<Field> fields;
  for (const auto& [name, tensor] : tensors) {
    values.push_back(tensor.detach().cpu().contiguous());
    fields.push_back({name, dtype_of(name, tensor), tensor.sizes().vec()});
  }
  std::filesystem::path temporary = path;
  temporary += ".part";
  Fs& fs = Fs::real();
  try {
    const auto file = fs.create(temporary);
    format::write_safetensors(*file, fields, [&](std::size_t i) { return std::span<const std::byte>(bytes_of(values[i])); });
    file->sync();
    file->close();
    fs.rename(temporary, path);
  } catch (const FsError& error) {
    fs.remove_all(temporary);
    throw UsageError({"the output can't be written: " + std::string(error.what()), "--output " + path.string(),
                      "choose a place that exists, is yours to write to and has room"});
  }
}

}  // namespace millrace::cli
