// The kernels' arithmetic for tensors without kernels: fp32 inside, x's type outside, and only x kept for the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace millrace::kernels {

// fp16 and bf16 as fp32; other types unchanged.
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A function of one tensor by ATen's operations, whose result has its argument's type. Any device.
using Plain = std::function<at::Tensor(const at::Tensor& x)>;

// plain(wide(x)), rounded once to x's type. If a gradient is required, only x is kept, and nothing that `plain` computes: the
// backward pass calls it again. Autocast does not apply. Differentiable once.
[[nodiscard]] at::Tensor widened(const at::Tensor& x, const Plain& plain);

}  // namespace millrace::kernels
