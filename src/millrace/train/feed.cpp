#include "millrace/train/feed.h"

#include <ATen/ops/from_blob.h>

#include "millrace/core/scalar_type.h"

namespace millrace {

Batch to_batch(data::HostBatch host, Split split, at::Device device) {
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
    group.indices.assign(from.indices.begin(), from.indices.end());
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), {.split = split, .epoch = host.epoch, .index = host.index});
}

Batch moved_to(Batch batch, at::Device device) {
  for (Group& group : batch.groups()) {
    for (auto& [name, field] : group.fields) field = field.to(device);
  }
  return batch;
}

}  // namespace millrace
