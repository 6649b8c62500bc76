#include "millrace/train/feed.h"

#include <ATen/ops/from_blob.h>

#include "millrace/base/error.h"

namespace millrace {

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return at::kBool;
    case DType::u8:
      return at::kByte;
    case DType::i8:
      return at::kChar;
    case DType::i16:
      return at::kShort;
    case DType::u16:
      return at::kUInt16;
    case DType::i32:
      return at::kInt;
    case DType::u32:
      return at::kUInt32;
    case DType::i64:
      return at::kLong;
    case DType::u64:
      return at::kUInt64;
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    case DType::f32:
      return at::kFloat;
    case DType::f64:
      return at::kDouble;
    case DType::c64:
      return at::kComplexFloat;
    case DType::c128:
      return at::kComplexDouble;
  }
  throw InternalError({"a data type without a tensor type", "", ""});
}

Batch to_batch(data::HostBatch host, at::Device device) {
  std::vector<Group> groups;
  groups.reserve(host.groups.size());
  for (data::HostGroup& from : host.groups) {
    Group group;
    group.name = std::string(from.name);
    for (std::size_t f = 0; f < from.fields.size(); ++f) {
      const Field& field = from.fields[f];
      std::vector<std::int64_t> sizes{static_cast<std::int64_t>(from.positions.size())};
      sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
      at::Tensor view = at::from_blob(
          from.data[f], sizes, [slot = host.slot](void*) {}, at::TensorOptions(scalar_type_of(field.dtype)));
      // A copy that did not wait would outlive the slot: LibTorch's host allocator does not know this memory.
      group.fields.emplace(field.name, device.is_cpu() ? std::move(view) : view.to(device));
    }
    group.positions = std::move(from.positions);
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), host.epoch);
}

}  // namespace millrace
