// Parts of decoders in LLaMA's manner, each as one pass forward and one backward. On the CPU, fp32 or bf16 and fp32 inside; what
// has no kernel is the caller's to compute by ATen's operations (nn/decoder.h). All are differentiable once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// Whether the functions below take x: fp32 or bf16 on the CPU, and not empty.
[[nodiscard]] bool has_decoder_kernels(const at::Tensor& x);

// y = x * rsqrt(mean(x^2) + epsilon) * weight over the last dimension, in `type` (fp32 or bf16). weight (width) fp32. A weight
// that requires no gradient has none computed.
at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type);
// {residual + branch, rms_rows of it}: the sum has the residual's type, y the branch's. Nobody else may read the branch
// afterwards: the sum is written over it where it is no leaf and of the residual's type.
std::pair<at::Tensor, at::Tensor> add_rms_rows(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double epsilon);

// silu(gate) * up of (..., 2 f), the gate's columns first -> (..., f). The last backward pass writes over `packed` unless it is a
// leaf: nobody else may read it then.
at::Tensor swiglu(const at::Tensor& packed);
// swiglu(packed) times weight (out, f) transposed, of packed's type and without gradient, -> (..., out). What swiglu gives is in
// memory for some rows at a time, forward and backward; else as swiglu() and forward_product() (product.h).
at::Tensor swiglu_linear(const at::Tensor& packed, const at::Tensor& weight);

// Causal attention of qkv (B, T, 3 H D) with queries and keys turned by angles (T, D / 2), cos and sin of them in fp32: the pair
// (i, i + D / 2) of each head as a number of the plane. qkv is turned in place where it is contiguous: nobody else may read it
// afterwards. -> (B, T, H D).
at::Tensor rotary_attention_packed(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, std::int64_t heads);
// The same for a single query of each row, q (B, 1, H D) at `positions` (B, int64), and keys and values kv (B, T, 2 H D), of
// which later ones are not seen. q and kv are turned in place, and the last backward pass writes over kv unless it is a leaf. ->
// (B, 1, H D).
at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const at::Tensor& cos,
                               const at::Tensor& sin, std::int64_t heads);

}  // namespace millrace::kernels
