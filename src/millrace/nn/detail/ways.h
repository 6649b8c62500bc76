// Which of the fused kernels a run takes, by kernels/ways.h: in a trial, forward and backward of the kernel and of its plain path
// are timed on tensors of the call's shape.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn::detail {

// Causal attention of (rows, length, heads, width) in `type`. Where the plain path's scores would take more memory than a trial
// may cost, the kernel is taken untried.
[[nodiscard]] bool attention_goes_our_way(at::IntArrayRef sizes, at::ScalarType type, double p);

// Attention without a mask of qkv (B, T, 3 C), and its plain path: result (B, T, H, C / H).
[[nodiscard]] bool full_attention_goes_our_way(const at::Tensor& qkv, std::int64_t heads);
[[nodiscard]] at::Tensor full_attention_plain(const at::Tensor& qkv, std::int64_t heads);

// Residual, dropout and layer norm over the last dimension of x.
[[nodiscard]] bool norm_goes_our_way(const at::Tensor& x, at::ScalarType residual_type, double p);

// Circular convolution by kernels::direct_conv3d, which takes these, or by its plain path.
[[nodiscard]] bool convolution_goes_our_way(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight);

}  // namespace millrace::nn::detail
