// The arithmetic of the kernels for tensors that have none: fp32 inside, x's type outside, x alone kept for the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace millrace::kernels {

// fp16 and bf16 as fp32; other types as they are.
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A function of one tensor from ATen's operations, which gives its argument's type. Any device.
using Plain = std::function<at::Tensor(const at::Tensor& x)>;

// plain(wide(x)), rounded once to x's type. Where a gradient is asked for, x is kept as it is and nothing of what `plain`
// computes: the backward pass calls it again. Autocast has no part in it. Differentiable once.
[[nodiscard]] at::Tensor widened(const at::Tensor& x, const Plain& plain);

}  // namespace millrace::kernels
