// Layers of a decoder on a device other than the CPU. kernels/decoder.h has the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace millrace::kernels {

// True if Millrace has kernels on x's device for rows of x.
[[nodiscard]] bool has_device_rows(const at::Tensor& x);

// Returns sum = x + branch (x without a branch), and y = RMS norm of the sum's rows times weight (fp32, one number for each
// column), in `type`. Differentiable once; LibTorch's operations compute the weight's gradient.
[[nodiscard]] std::pair<at::Tensor, at::Tensor> device_rms_rows(const at::Tensor& x, const at::Tensor& branch,
                                                                const at::Tensor& weight, double epsilon, at::ScalarType type);
// silu(a) * b for rows that hold a and b side by side. Differentiable once.
[[nodiscard]] at::Tensor device_swiglu(const at::Tensor& packed);
// True if device_turn_parts() supports these parts and angles.
[[nodiscard]] bool has_device_turn(const at::Tensor& packed, std::int64_t parts, std::int64_t heads, const at::Tensor& cos);
// Returns the parts (B, T, H, w) that stand side by side in `packed` (B, T, parts H w). The heads of the first `turned` parts
// are rotated by the angles of their rows, given as cos and sin (T, w / 2) in fp32. A contiguous `packed` is rotated in place,
// so no other code may read it afterwards. The parts' gradients form one tensor. Differentiable once.
[[nodiscard]] std::vector<at::Tensor> device_turn_parts(const at::Tensor& packed, std::int64_t parts, std::int64_t turned,
                                                        std::int64_t heads, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace millrace::kernels
