// A decoder's layers on a device other than the CPU: kernels/decoder.h has those of the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace millrace::kernels {

// Whether the device has kernels of ours for rows of x.
[[nodiscard]] bool has_device_rows(const at::Tensor& x);

// {x + branch, y}, y of dtype `type` = RMS norm of the sum's rows times weight (fp32, one for each column); without a branch the
// sum is x. Differentiable once; the weight's gradient by LibTorch's operations.
[[nodiscard]] std::pair<at::Tensor, at::Tensor> device_rms_rows(const at::Tensor& x, const at::Tensor& branch,
                                                                const at::Tensor& weight, double epsilon, at::ScalarType type);
// silu(a) * b of rows (a, b). Differentiable once.
[[nodiscard]] at::Tensor device_swiglu(const at::Tensor& packed);
// Whether device_turn() supports these heads.
[[nodiscard]] bool has_device_turn(const at::Tensor& x, const at::Tensor& cos);
// x (B, T, H, w), in which the heads of a row lie side by side, turned by the angles of its rows: cos and sin (T, w / 2) fp32.
// Differentiable once.
[[nodiscard]] at::Tensor device_turn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace millrace::kernels
