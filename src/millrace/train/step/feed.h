// Turns loader slots and synthetic batches into batches on the run's device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/step/detail/device_slots.h"

namespace millrace {

// Delivers a loader's batches on a device, in order. On the CPU the tensors are views of the loader's slot. On another device the
// next batch can be copied while the last launched step still runs. Belongs to the loop's thread.
class Feed {
 public:
  // `ahead`: batches may be copied in advance; otherwise next() waits for the copy. `timeline` records the loop's waits and
  // copies; null = not recorded. The loader and the timeline must outlive the feed.
  Feed(data::Loader& loader, Split split, at::Device device, bool ahead, telemetry::Timeline* timeline = nullptr);
  Feed(data::Loader& loader, Split split, std::unique_ptr<device::Copies> copies);

  // Returns the next batch, as Loader::next() does. Release the previous batch first, unless you hold it on purpose: see
  // DeviceSlots.
  [[nodiscard]] std::optional<Batch> next();
  // Called when all work on the latest batch is launched. Starts the copy of the next batch, if batches are copied. Afterwards
  // the loader's state is the state after that next batch. Does not throw: if the loader has an error, next() throws it.
  void look_ahead() noexcept;
  void drop();  // discards what look_ahead() started; call before the loader's position is changed

 private:
  std::optional<data::HostBatch> ask();

  data::Loader& loader_;
  Split split_;
  at::Device device_ = at::kCPU;
  telemetry::Timeline* timeline_ = nullptr;
  std::unique_ptr<DeviceSlots> slots_;    // null: tensors are host memory
  std::optional<data::HostBatch> ahead_;  // the next batch, taken from the loader; its copy is under way unless there was no room
  bool ended_ = false;                    // the loader has reported the end of its epoch, but next() has not
};

// Converts a single batch. On the CPU the tensors are views of the slot, which returns to the loader when the last view is
// destroyed. On another device the tensors are views of one copy, which is complete when this function returns.
[[nodiscard]] Batch to_batch(data::HostBatch host, Split split, at::Device device);

// Returns the batch with its tensors on `device`. Tensors that are on `device` already stay. The others are copied, and the
// copies are complete when this function returns.
[[nodiscard]] Batch moved_to(Batch batch, at::Device device);

}  // namespace millrace
