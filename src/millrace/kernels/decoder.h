// Parts of LLaMA-like decoders, each as one pass forward and one backward, for fp32 or bf16 on the CPU. The arithmetic is in
// fp32. For other tensors the caller uses ATen's operations (nn/decoder.h). All are differentiable once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// True if the functions below support x: fp32 or bf16 on the CPU, and not empty.
[[nodiscard]] bool has_decoder_kernels(const at::Tensor& x);

// y = x * rsqrt(mean(x^2) + epsilon) * weight over the last dimension, in `type` (fp32 or bf16). weight (width) is fp32; its
// gradient is computed only if it is required.
at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type);
// Returns sum = residual + branch, in the residual's type, and y = rms_rows(sum), in the branch's type. The sum overwrites the
// branch if the branch is not a leaf and has the residual's type, so no other code may read the branch afterwards.
std::pair<at::Tensor, at::Tensor> add_rms_rows(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double epsilon);

// silu(gate) * up. `packed` (..., 2 f) holds gate and up side by side, the gate first; the result is (..., f). Unless `packed`
// is a leaf, the last backward pass overwrites `packed`, so no other code may read it after that pass.
at::Tensor swiglu(const at::Tensor& packed);
// swiglu(packed) times the transposed weight (out, f), which has packed's type and needs no gradient; the result is (..., out).
// Forward and backward compute the result of swiglu for some rows at a time, so that result is never in memory as a whole. For
// the rest see swiglu() and forward_product() (product.h).
at::Tensor swiglu_linear(const at::Tensor& packed, const at::Tensor& weight);

// Causal attention of qkv (B, T, 3 H D) with rotary positions; the result is (B, T, H D). Queries and keys are rotated by angles
// (T, D / 2), given as fp32 cos and sin: each pair (i, i + D / 2) of a head is rotated as a point of the plane. A contiguous qkv
// is rotated in place: no other code may read it afterwards.
at::Tensor rotary_attention_packed(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, std::int64_t heads);
// The attention of rotary_attention_packed() for a single query of each row: q (B, 1, H D) at `positions` (B, int64), with keys
// and values kv (B, T, 2 H D). Keys after a query's position are masked. The result is (B, 1, H D). A contiguous kv is rotated
// in place, and the last backward pass overwrites kv unless it is a leaf, so no other code may read kv afterwards.
at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const at::Tensor& cos,
                               const at::Tensor& sin, std::int64_t heads);

}  // namespace millrace::kernels
