#include "millrace/train/step/feed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

using telemetry::Phase;

// Counts time in an account of the timeline; does nothing without a timeline.
class Account {
 public:
  Account(telemetry::Timeline* timeline, Phase phase) {
    if (timeline != nullptr) span_.emplace(*timeline, phase);
  }

 private:
  std::optional<telemetry::Span> span_;
};

// Makes tensors that share the slot. The slot returns to the loader when the last of the tensors is destroyed.
Batch views_of(data::HostBatch host, Split split) {
  const auto view = [slot = host.slot](std::byte* data, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
    return at::from_blob(
        data, sizes, [slot](void*) {}, at::TensorOptions(type));
  };
  return batch_with(view, std::move(host), split);
}

}  // namespace

Feed::Feed(data::Loader& loader, Split split, at::Device device, bool ahead, telemetry::Timeline* timeline)
    : loader_(loader), split_(split), device_(device), timeline_(timeline) {
  if (auto copies = ahead ? device::copies_of(device) : nullptr) slots_ = std::make_unique<DeviceSlots>(std::move(copies));
}

Feed::Feed(data::Loader& loader, Split split, std::unique_ptr<device::Copies> copies)
    : loader_(loader), split_(split), slots_(std::make_unique<DeviceSlots>(std::move(copies))) {}

std::optional<data::HostBatch> Feed::ask() {
  // The loader allows a consumer to hold one batch while the consumer asks for the next. If more than one copy is running, the
  // device is two steps behind, so waiting for the oldest copy is waiting for a step.
  while (slots_ != nullptr && slots_->under_way() > 1) {
    const Account waiting(timeline_, Phase::backward);
    slots_->wait();
  }
  const Account waiting(timeline_, Phase::data_wait);
  return loader_.next();
}

std::optional<Batch> Feed::next() {
  if (std::exchange(ended_, false)) return std::nullopt;
  if (!ahead_) ahead_ = ask();
  if (!ahead_) return std::nullopt;
  const Account copying(timeline_, Phase::copy);
  if (slots_ != nullptr && !slots_->sent()) slots_->send(*ahead_);
  data::HostBatch host = std::move(*ahead_);
  ahead_.reset();
  return slots_ == nullptr ? to_batch(std::move(host), split_, device_) : slots_->take(std::move(host), split_);
}

void Feed::look_ahead() noexcept {
  if (slots_ == nullptr || ahead_ || ended_) return;
  try {
    slots_->launched();
    ahead_ = ask();
    ended_ = !ahead_;
    const Account copying(timeline_, Phase::copy);
    if (!ahead_) return;
    slots_->send(*ahead_);
    static const telemetry::Counter taken("batch_ahead");
    taken.add(1);
    // ignored, because next() throws the error again: a sample can't be read, or there is no memory for another batch
  } catch (const std::exception&) {
  }
}

void Feed::drop() {
  ahead_.reset();
  ended_ = false;
  if (slots_ != nullptr) slots_->drop();
}

Batch to_batch(data::HostBatch host, Split split, at::Device device) {
  if (device.is_cpu()) return views_of(std::move(host), split);
  const HostBlock block = block_of(host);
  const at::Tensor memory = at::empty({std::max<std::int64_t>(block.bytes, 1)}, at::TensorOptions(at::kByte).device(device));
  if (block.bytes > 0)
    memory.narrow(0, 0, block.bytes).copy_(at::from_blob(block.first, {block.bytes}, at::TensorOptions(at::kByte)));
  return batch_in(memory, std::move(host), split);
}

Batch moved_to(Batch batch, at::Device device) {
  for (Group& group : batch.groups()) {
    for (auto& [name, field] : group.fields) field = field.to(device);
  }
  return batch;
}

}  // namespace millrace
