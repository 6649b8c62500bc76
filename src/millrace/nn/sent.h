// Small tensors that are made on the host for one batch.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn {

// Where the device computes, without a wait: by way of page-locked memory, behind what the device has to do before. A tensor that
// is to stay on the host is given back as it is.
[[nodiscard]] at::Tensor sent(const at::Tensor& host, at::Device device);

}  // namespace millrace::nn
