// From loader slots and made-up batches to batches on the run's device.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/core/batch.h"
#include "millrace/data/loader.h"

namespace millrace {

// Tensors are views of the slot on the CPU (the slot returns when the last of them dies), copies elsewhere.
[[nodiscard]] Batch to_batch(data::HostBatch host, Split split, at::Device device);

// The same batch with its tensors on `device`. Those that lie there already stay as they are; the others are copied, and the copy
// is complete when this returns.
[[nodiscard]] Batch moved_to(Batch batch, at::Device device);

}  // namespace millrace
