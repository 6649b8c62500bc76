// The kernels' arithmetic for tensors without kernels: computes in fp32, returns x's type, and keeps only x for the backward
// pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace millrace::kernels {

// x as fp32 if it is fp16 or bf16; otherwise x unchanged.
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A function of one tensor by ATen's operations; its result has the argument's type. Any device.
using Plain = std::function<at::Tensor(const at::Tensor& x)>;

// plain(wide(x)), rounded once to x's type. If a gradient is required, only x is kept, not the intermediate results of `plain`,
// and the backward pass calls `plain` again. Autocast does not apply. Differentiable once.
[[nodiscard]] at::Tensor widened(const at::Tensor& x, const Plain& plain);

}  // namespace millrace::kernels
