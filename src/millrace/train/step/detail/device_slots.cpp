#include "millrace/train/step/detail/device_slots.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "millrace/core/scalar_type.h"

namespace millrace {
namespace {

std::int64_t rows_of(const data::HostBatch::Group& group) { return static_cast<std::int64_t>(group.positions.size()); }

std::vector<std::int64_t> sizes_of(const Field& field, std::int64_t rows) {
  std::vector<std::int64_t> sizes{rows};
  sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
  return sizes;
}

// Makes a tensor whose values lie in `memory`. For autograd the tensor is no view, so fields that share memory can be changed
// independently.
at::Tensor tensor_in(const at::Tensor& memory, std::int64_t offset, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory.storage()), memory.key_set(), c10::scalarTypeToTypeMeta(type));
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(offset / static_cast<std::int64_t>(c10::elementSize(type)));
  impl->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace

HostBlock block_of(const data::HostBatch& host) {
  std::byte* first = nullptr;
  std::byte* end = nullptr;
  for (const data::HostBatch::Group& group : host.groups) {
    for (std::size_t f = 0; f < group.fields.size(); ++f) {
      const std::size_t bytes = group.fields[f].bytes() * group.positions.size();
      if (bytes == 0) continue;
      first = first == nullptr ? group.data[f] : std::min(first, group.data[f]);
      end = std::max(end, group.data[f] + bytes);
    }
  }
  return {first, end - first};
}

Batch batch_with(const FieldTensor& tensor, data::HostBatch host, Split split) {
  std::vector<Group> groups;
  groups.reserve(host.groups.size());
  for (data::HostBatch::Group& from : host.groups) {
    Group group;
    group.name = std::string(from.name);
    for (std::size_t f = 0; f < from.fields.size(); ++f) {
      const Field& field = from.fields[f];
      group.fields.emplace(field.name, tensor(from.data[f], sizes_of(field, rows_of(from)), scalar_type_of(field.dtype)));
    }
    group.positions = std::move(from.positions);
    group.indices.assign(from.indices.begin(), from.indices.end());
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), {.split = split, .epoch = host.epoch, .index = host.index});
}

Batch batch_in(const at::Tensor& memory, data::HostBatch host, Split split) {
  const HostBlock block = block_of(host);
  const auto tensor = [&](std::byte* data, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
    const bool empty = std::ranges::find(sizes, 0) != sizes.end();
    return tensor_in(memory, empty ? 0 : data - block.first, sizes, type);
  };
  return batch_with(tensor, std::move(host), split);
}

DeviceSlots::~DeviceSlots() {
  try {
    while (under_way() > 0) wait();
  } catch (const std::exception&) {  // ignored, because the device is lost, and so are its copies
  }
}

void DeviceSlots::send(const data::HostBatch& host) {
  launched();
  Slot& slot = slots_[turn_];
  const HostBlock block = block_of(host);
  if (!slot.memory.defined() || slot.memory.numel() < block.bytes || is_held(slot)) {
    slot = {};  // frees the old memory before the new memory is allocated, because both together may not fit
    slot.memory = copies_->memory(std::max<std::int64_t>(block.bytes, 1));
    slot.free = copies_->mark_work();  // the device reaches this mark when earlier work on this memory is done
  }
  copies_->hold_copies(*slot.free);
  if (block.bytes > 0)
    copies_->copy(slot.memory.narrow(0, 0, block.bytes), at::from_blob(block.first, {block.bytes}, at::TensorOptions(at::kByte)));
  sent_ = {&slot, copies_->mark_copies()};
  under_way_.push_back({sent_.copied, host.slot});
  turn_ = 1 - turn_;
}

Batch DeviceSlots::take(data::HostBatch host, Split split) {
  launched();
  copies_->hold_work(*sent_.copied);
  taken_ = std::exchange(sent_, {}).slot;
  return batch_in(taken_->memory, std::move(host), split);
}

void DeviceSlots::launched() {
  Slot* const slot = std::exchange(taken_, nullptr);
  if (slot == nullptr) return;
  if (is_held(*slot)) {
    *slot = {};  // drops the slot's memory, because the holder of the old batch may still launch work on that memory
  } else {
    slot->free = copies_->mark_work();
  }
}

void DeviceSlots::drop() {
  taken_ = nullptr;
  // Without this, later work could get the batch's memory before the copy has ended.
  if (sent()) copies_->hold_work(*sent_.copied);
  sent_ = {};
  slots_ = {};
}

std::size_t DeviceSlots::under_way() {
  while (!under_way_.empty() && under_way_.front().copied->reached()) under_way_.pop_front();
  return under_way_.size();
}

void DeviceSlots::wait() {
  under_way_.front().copied->wait();
  under_way_.pop_front();
}

}  // namespace millrace
