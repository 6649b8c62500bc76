// Which of the fused kernels a run takes, by kernels/operation_trial.h: in a trial, forward and backward of the kernel and of its
// plain path are timed on tensors of the call's shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace millrace::nn::detail {

// Causal attention of (rows, length, heads, width) in `type`. Where the plain path's scores would take more memory than a trial
// may cost, the kernel is taken untried.
[[nodiscard]] bool attention_takes_ours(at::IntArrayRef sizes, at::ScalarType type, double p);

// Attention without a mask of qkv (B, T, 3 C), and its plain path: result (B, T, H, C / H).
[[nodiscard]] bool full_attention_takes_ours(const at::Tensor& qkv, std::int64_t heads);
[[nodiscard]] at::Tensor full_attention_plain(const at::Tensor& qkv, std::int64_t heads);

// Residual, dropout and layer norm over the last dimension of x.
[[nodiscard]] bool norm_takes_ours(const at::Tensor& x, at::ScalarType residual_type, double p);

// For the trials of all operations: a leaf whose values meet no special case of a kernel, and a function that runs `forward`,
// then the backward pass to all inputs.
using Tensors = std::vector<at::Tensor>;
[[nodiscard]] at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type);
[[nodiscard]] std::function<void()> forward_and_backward(const Tensors& inputs, std::function<Tensors()> forward);

}  // namespace millrace::nn::detail
