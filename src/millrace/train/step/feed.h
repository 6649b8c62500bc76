// From loader slots and made-up batches to batches on the run's device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/step/device_slots.h"

namespace millrace {

// The batches of a loader on a device, in order. In host memory they are views of the loader's slot; elsewhere the next one can
// be on its way while the step that was launched last still runs. Belongs to the loop's thread.
class Feed {
 public:
  // `ahead`: batches may be on their way; else next() waits for the copy. `timeline`: its accounts say what the loop waits for
  // and copies; null = nobody asks. Both outlive the feed.
  Feed(data::Loader& loader, Split split, at::Device device, bool ahead, telemetry::Timeline* timeline = nullptr);
  Feed(data::Loader& loader, Split split, std::unique_ptr<device::Copies> copies);

  // As Loader::next(). A batch from before is to be let go first, or held on purpose: see DeviceSlots.
  [[nodiscard]] std::optional<Batch> next();
  // All work on the latest batch is launched: where batches are copied, the next one begins its way. Throws nothing: whatever is
  // wrong with it, next() meets again. The loader's state is from then on that behind the batch to come.
  void look_ahead() noexcept;
  void drop();  // what look_ahead() began; before the loader goes elsewhere

 private:
  std::optional<data::HostBatch> ask();

  data::Loader& loader_;
  Split split_;
  at::Device device_ = at::kCPU;
  telemetry::Timeline* timeline_ = nullptr;
  std::unique_ptr<DeviceSlots> slots_;    // null: tensors are host memory
  std::optional<data::HostBatch> ahead_;  // asked for, and sent unless there was no room
  bool ended_ = false;                    // the loader has told the end of its epoch, next() has not
};

// Of one batch alone. Tensors are views of the slot on the CPU (the slot returns when the last of them dies), views of one copy
// elsewhere, which is complete when this returns.
[[nodiscard]] Batch to_batch(data::HostBatch host, Split split, at::Device device);

// The same batch with its tensors on `device`. Those that lie there already stay as they are; the others are copied, and the copy
// is complete when this returns.
[[nodiscard]] Batch moved_to(Batch batch, at::Device device);

}  // namespace millrace
