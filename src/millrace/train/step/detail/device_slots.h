// Copies batches from the loader's memory into the device's memory while steps run.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/device/copies.h"

namespace millrace {

// The part of the loader's memory that holds the fields of a batch: from the first field to the end of the last.
struct HostBlock {
  std::byte* first = nullptr;
  std::int64_t bytes = 0;
};
[[nodiscard]] HostBlock block_of(const data::HostBatch& host);

// Makes the tensor of a field from these bytes of the loader's memory, with this shape and type.
using FieldTensor = std::function<at::Tensor(std::byte* data, const std::vector<std::int64_t>& sizes, at::ScalarType type)>;
[[nodiscard]] Batch batch_with(const FieldTensor& tensor, data::HostBatch host, Split split);

// Returns a batch whose fields are views of `memory`, which holds a copy of the batch's HostBlock.
[[nodiscard]] Batch batch_in(const at::Tensor& memory, data::HostBatch host, Split split);

// Copies batches into two slots in turn: while the launched work reads one slot, the next batch is copied into the other, in one
// copy. The device waits if it must; the host waits only in wait(). If tensors of a slot are still held when its turn comes, they
// keep their memory and the slot takes new memory. Belongs to one thread.
class DeviceSlots {
 public:
  explicit DeviceSlots(std::unique_ptr<device::Copies> copies) : copies_(std::move(copies)) {}
  ~DeviceSlots();  // waits for running copies, then returns their host memory to the loader
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  void send(const data::HostBatch& host);  // starts the batch's copy; the slots hold its host memory until the copy is done
  [[nodiscard]] bool sent() const noexcept { return sent_.copied != nullptr; }
  // Returns the batch that send() copied. On the device, work launched from here on waits for the copy.
  [[nodiscard]] Batch take(data::HostBatch host, Split split);
  // Call when all work on the batch of the last take() is launched.
  void launched();
  void drop();  // call if the batch that send() copied will not be taken
  // The number of the loader's batches whose copies have not ended.
  [[nodiscard]] std::size_t under_way();
  void wait();  // the host waits for the oldest copy

 private:
  struct Slot {
    at::Tensor memory;             // undefined until it is first needed
    device::Copies::MarkPtr free;  // the device reaches this mark when the last work that used `memory` is done
  };
  struct UnderWay {
    device::Copies::MarkPtr copied;
    std::shared_ptr<void> host;
  };
  [[nodiscard]] bool is_held(const Slot& slot) const { return slot.memory.storage().use_count() > 1; }

  std::unique_ptr<device::Copies> copies_;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
  Slot* taken_ = nullptr;  // the slot of the last taken batch, whose work may not be launched yet
  struct {
    Slot* slot = nullptr;
    device::Copies::MarkPtr copied;
  } sent_;
  std::deque<UnderWay> under_way_;
};

}  // namespace millrace
