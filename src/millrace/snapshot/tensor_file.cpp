#include "millrace/snapshot/tensor_file.h"

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/pt.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/detail/tensors.h"

#include <ATen/ops/empty.h>

namespace millrace::snapshot {
namespace {

// Returns all tensors of a SafetensorsFile or a PtFile.
template <class File>
Tensors read_all(File stored) {
  Tensors tensors;
  for (const auto& tensor : stored.tensors()) {
    at::Tensor result = at::empty(tensor.shape, at::TensorOptions().dtype(scalar_type_of(tensor.dtype)));
    stored.read(tensor, detail::bytes_of(result));
    tensors.emplace(tensor.name, std::move(result));
  }
  return tensors;
}

}  // namespace

bool is_pt_name(const std::filesystem::path& file) {
  const std::filesystem::path extension = file.extension();
  return extension == ".pt" || extension == ".pth";
}

Tensors read_tensors(const std::filesystem::path& file) {
  try {
    return is_pt_name(file) || format::looks_like_pt(file) ? read_all(format::PtFile(file))
                                                           : read_all(format::SafetensorsFile(file));
  } catch (const DataError& error) {
    if (!error.message().where.empty()) throw;
    throw DataError({error.message().what, file.string(), error.message().next});
  } catch (const c10::Error& error) {
    throw DataError(
        {file.string() + " does not fit into memory", error.what_without_backtrace(), "free memory, or give a smaller file"});
  }
}

void write_tensors(Fs& fs, const std::filesystem::path& file, const Tensors& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<Field> fields;
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    const auto dtype = dtype_of(tensor.scalar_type());
    if (!dtype)
      throw DataError(
          {"tensor " + quoted(name) + " has a type that the file's format can't hold", file.string(), "convert it first"});
    fields.push_back({name, *dtype, Shape(tensor.sizes().begin(), tensor.sizes().end())});
    values.push_back(tensor);
  }
  at::Tensor host;  // keeps alive the bytes of the tensor that is being written
  const format::TensorBytes bytes_of = [&](std::size_t i) {
    host = detail::on_host(values[i]);
    return std::span<const std::byte>(detail::bytes_of(host));
  };
  try {
    write_atomically(fs, file, [&](WritableFile& out) {
      is_pt_name(file) ? format::write_pt(out, fields, bytes_of)
                       : static_cast<void>(format::write_safetensors(out, fields, bytes_of, metadata));
    });
  } catch (const FsError& error) {
    throw DataError({"can't write " + file.string(), error.what(), remedy_for(error.error_number())});
  }
}

}  // namespace millrace::snapshot
