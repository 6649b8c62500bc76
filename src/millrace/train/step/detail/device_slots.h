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

// The batch with its fields as views of `memory`, which holds a copy of its block.
[[nodiscard]] Batch batch_in(const at::Tensor& memory, data::HostBatch host, Split split);

// Two slots take turns: while the launched work reads one, the next batch is copied into the other, in one copy. The device waits
// if it must; the host waits only in wait(). If tensors of a slot are still held when its turn comes, they keep their memory and
// the slot takes other memory. Belongs to one thread.
class DeviceSlots {
 public:
  explicit DeviceSlots(std::unique_ptr<device::Copies> copies) : copies_(std::move(copies)) {}
  ~DeviceSlots();  // waits for the copies under way, then returns their host memory to the loader
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  void send(const data::HostBatch& host);  // starts the batch's copy; the slots hold its host memory until the copy is done
  [[nodiscard]] bool sent() const noexcept { return sent_.copied != nullptr; }
  // The batch that was sent. Work launched from here on waits for its copy, on the device.
  [[nodiscard]] Batch take(data::HostBatch host, Split split);
  // Called when all work on the batch taken last is launched.
  void launched();
  void drop();  // the batch that was sent will not be taken
  // The number of the loader's batches in copies that are not done.
  [[nodiscard]] std::size_t under_way();
  void wait();  // the host waits for the oldest copy

 private:
  struct Slot {
    at::Tensor memory;             // undefined until it is needed
    device::Copies::MarkPtr free;  // reached when the last work that used it is done
  };
  struct UnderWay {
    device::Copies::MarkPtr copied;
    std::shared_ptr<void> host;
  };
  [[nodiscard]] bool is_held(const Slot& slot) const { return slot.memory.storage().use_count() > 1; }

  std::unique_ptr<device::Copies> copies_;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
  Slot* taken_ = nullptr;  // the slot of the batch taken last, which may have work that is not launched yet
  struct {
    Slot* slot = nullptr;
    device::Copies::MarkPtr copied;
  } sent_;
  std::deque<UnderWay> under_way_;
};

}  // namespace millrace
