// Batches on their way from the loader's memory into memory of the device, beside the steps.
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

// Where the fields of a batch lie in the loader's memory: from the first of them to the last.
struct HostBlock {
  std::byte* first = nullptr;
  std::int64_t bytes = 0;
};
[[nodiscard]] HostBlock block_of(const data::HostBatch& host);

// The batch with a tensor for each field: of these bytes of the loader's memory, this shape and type.
using FieldTensor = std::function<at::Tensor(std::byte* data, const std::vector<std::int64_t>& sizes, at::ScalarType type)>;
[[nodiscard]] Batch batch_with(const FieldTensor& tensor, data::HostBatch host, Split split);

// The batch, its fields being views of `memory`, which holds a copy of its block.
[[nodiscard]] Batch batch_in(const at::Tensor& memory, data::HostBatch host, Split split);

// Two slots in turn: while the work reads one, the next batch is copied into the other, in one copy. The device waits where it
// must, the host never does, but in wait(). What somebody still holds of a slot when its turn comes stays what it is: the slot
// takes other memory. Belongs to one thread.
class DeviceSlots {
 public:
  explicit DeviceSlots(std::unique_ptr<device::Copies> copies) : copies_(std::move(copies)) {}
  ~DeviceSlots();  // waits for the copies under way, whose host memory goes back to the loader
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  void send(const data::HostBatch& host);  // begins its copy; the host memory stays with the slots until it is done
  [[nodiscard]] bool sent() const noexcept { return sent_.copied != nullptr; }
  // The batch that was sent. Work that is launched from here on waits for its copy, on the device.
  [[nodiscard]] Batch take(data::HostBatch host, Split split);
  // All work on the batch that was taken last is launched.
  void launched();
  void drop();  // what was sent is not to be taken
  // How many batches of the loader are with copies that are not done.
  [[nodiscard]] std::size_t under_way();
  void wait();  // on the host, for the oldest of them

 private:
  struct Slot {
    at::Tensor memory;             // undefined until it is needed
    device::Copies::MarkPtr free;  // behind the work that used it last
  };
  struct UnderWay {
    device::Copies::MarkPtr copied;
    std::shared_ptr<void> host;
  };
  [[nodiscard]] bool is_held(const Slot& slot) const { return slot.memory.storage().use_count() > 1; }

  std::unique_ptr<device::Copies> copies_;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
  Slot* taken_ = nullptr;  // by a batch whose work may not be launched yet
  struct {
    Slot* slot = nullptr;
    device::Copies::MarkPtr copied;
  } sent_;
  std::deque<UnderWay> under_way_;
};

}  // namespace millrace
