// Sends small tensors from the host to the device of a batch.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn {

// Copies a tensor to the device without waiting, through page-locked memory; the copy is done after the device's earlier work. A
// tensor that stays on the host is returned unchanged. Throws RecipeError while a device records a step, because each replay
// would copy the present numbers again.
[[nodiscard]] at::Tensor sent(const at::Tensor& host, at::Device device);

}  // namespace millrace::nn
