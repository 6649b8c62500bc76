// Decides by trials (kernels/operation_trial.h) which fused kernels a run uses. A trial times forward and backward of the kernel
// and of its plain path, on tensors of the call's shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace millrace::nn::detail {

// True if causal attention of (rows, length, heads, width) in `type` should use Millrace's kernel. A call is not timed if the
// plain path's scores would need more memory than a trial may use.
[[nodiscard]] bool attention_takes_ours(at::IntArrayRef sizes, at::ScalarType type, double p);

// True if attention of qkv (B, T, 3 C) without a mask should use Millrace's kernel; for the rest see attention_takes_ours().
// full_attention_plain() is the plain path of that attention, with the result (B, T, H, C / H).
[[nodiscard]] bool full_attention_takes_ours(const at::Tensor& qkv, std::int64_t heads);
[[nodiscard]] at::Tensor full_attention_plain(const at::Tensor& qkv, std::int64_t heads);

// True if residual, dropout and layer norm over the last dimension of x should use Millrace's kernel.
[[nodiscard]] bool norm_takes_ours(const at::Tensor& x, at::ScalarType residual_type, double p);

// Helpers for the trials of all operations. leaf() makes a leaf whose values avoid a kernel's special cases.
// forward_and_backward() returns a function that runs `forward` and then the backward pass to all inputs.
using Tensors = std::vector<at::Tensor>;
[[nodiscard]] at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type);
[[nodiscard]] std::function<void()> forward_and_backward(const Tensors& inputs, std::function<Tensors()> forward);

}  // namespace millrace::nn::detail
