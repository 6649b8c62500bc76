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

// The batches of a loader on a device, in order. In host memory they are views of the loader's slot; on another device the next
// batch can be copied while the last launched step still runs. Belongs to the loop's thread.
class Feed {
 public:
  // `ahead`: batches may be copied in advance; else next() waits for the copy. `timeline`: gets the loop's waits and copies; null
  // = not recorded. Both outlive the feed.
  Feed(data::Loader& loader, Split split, at::Device device, bool ahead, telemetry::Timeline* timeline = nullptr);
  Feed(data::Loader& loader, Split split, std::unique_ptr<device::Copies> copies);

  // As Loader::next(). Release the previous batch first, unless it is held on purpose: see DeviceSlots.
  [[nodiscard]] std::optional<Batch> next();
  // Called when all work on the latest batch is launched: starts the copy of the next batch, if batches are copied. From then on
  // the loader's state is the state after that batch. Does not throw: next() meets the same error again.
  void look_ahead() noexcept;
  void drop();  // discards what look_ahead() started; call before the loader moves elsewhere

 private:
  std::optional<data::HostBatch> ask();

  data::Loader& loader_;
  Split split_;
  at::Device device_ = at::kCPU;
  telemetry::Timeline* timeline_ = nullptr;
  std::unique_ptr<DeviceSlots> slots_;    // null: tensors are host memory
  std::optional<data::HostBatch> ahead_;  // taken from the loader, and sent unless there was no room
  bool ended_ = false;                    // the loader has reported the end of its epoch, next() has not
};

// Converts a single batch. On the CPU tensors are views of the slot, which returns when the last view dies; elsewhere they are
// views of one copy, which is complete when this returns.
[[nodiscard]] Batch to_batch(data::HostBatch host, Split split, at::Device device);

// The same batch with its tensors on `device`. Tensors that are there already are unchanged; the others are copied, and the copy
// is complete when this returns.
[[nodiscard]] Batch moved_to(Batch batch, at::Device device);

}  // namespace millrace
