// Sends small tensors from the host to the device of a batch.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn {

// The tensor on the device, without a wait: by way of page-locked memory, in order after the device's earlier work. A tensor that
// stays on the host is returned unchanged. RecipeError while a device records a step: it would repeat this copy of today's
// numbers.
[[nodiscard]] at::Tensor sent(const at::Tensor& host, at::Device device);

}  // namespace millrace::nn
