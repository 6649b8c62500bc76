// Functions for recipes. Each uses the fused kernel or the plain ATen path, as nn/fused.h decides. Both paths draw the same
// random bits and one key per site, so turning off a switch changes no other result. Under autocast, matrix products run in
// autocast's type, residuals stay fp32, norms and losses compute in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/kernels/gelu_kind.h"
#include "millrace/nn/fused.h"

namespace millrace::nn {

// The comment beside a switch names the operations that run if the switch is off; results are equal within tolerance.
inline constexpr Switch kFusedDropout{"fused_dropout"};      // a mask of the same bits, then ATen's product
inline constexpr Switch kFusedAttention{"fused_attention"};  // three products, then (T, T) scores, mask and softmax
inline constexpr Switch kFusedNorm{"fused_norm"};            // dropout, add and at::layer_norm one after the other
// at::gelu, then dropout; their result is kept for the backward pass.
inline constexpr Switch kFusedGelu{"fused_gelu"};
inline constexpr Switch kFusedLoss{"fused_loss"};        // log_softmax and nll_loss in fp32
inline constexpr Switch kBf16Weights{"bf16_weights"};    // at::linear: autocast casts the weight in every forward pass
inline constexpr Switch kFp32Products{"fp32_products"};  // at::linear

// Drops each element with probability `p`: pass 0 outside training. With p = 0 no key is drawn.
at::Tensor dropout(const at::Tensor& x, double p, const Fused& fused);
// residual + dropout(x), in the residual's dtype.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, const Fused& fused);
// dropout(gelu(x)) with the exact GELU.
at::Tensor gelu_dropout(const at::Tensor& x, double p, const Fused& fused);

// x W^T + b; bias may be undefined. Under autocast the result has autocast's dtype.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused);
using kernels::Gelu;
at::Tensor gelu(const at::Tensor& x, Gelu kind);
// linear() of gelu(x), with GELU of this kind. On a CPU only x is kept for the backward pass, in bf16 if the product uses
// Millrace's kernel.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Gelu kind, const Fused& fused);

// Layer norm over the last dimension. Under autocast the result has autocast's dtype, because it feeds a matrix product;
// otherwise x's dtype.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const Fused& fused);
// The operations between two branches of a pre-norm block: residual' = residual + dropout(x), y = layer_norm(residual'). Returns
// {residual', y}.
std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double eps, double p,
                                                         const Fused& fused);

// softmax(q k^T / sqrt(D)) v with a causal mask and dropout on the weights. All tensors are (B, T, H, D), with any strides.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p, const Fused& fused);

// Weights (C, C) and biases (C) of the three input projections of self-attention. The biases are all defined or all undefined.
struct QkvWeights {
  at::Tensor w_q, b_q, w_k, b_k, w_v, b_v;
};
// Causal self-attention of x (B, T, C) without the output projection. Result (B, T, C).
at::Tensor causal_self_attention(const at::Tensor& x, const QkvWeights& weights, std::int64_t heads, double p,
                                 const Fused& fused);

// softmax(q k^T / sqrt(D)) v without a mask, as in an encoder. qkv (B, T, 3 C) holds queries, keys and values side by side.
// Result (B, T, C).
at::Tensor full_self_attention(const at::Tensor& qkv, std::int64_t heads, const Fused& fused);

// Cross-entropy summed over rows, computed in fp32. logits (..., V), target (...) int64; rows with target == ignore_index do not
// count. Returns {sum (differentiable), count}, fp32 scalars. For a classifier's loss see nn/cross_entropy.h. Throws DataError
// for other shapes and types. Throws RowError for a target outside 0..V-1 on the CPU (on a GPU LibTorch ends the process).
std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, std::int64_t ignore_index,
                                                    const Fused& fused);

// A table (length, width) in fp32: column 2i of row p is sin(p w_i), column 2i+1 is cos(p w_i), w_i = 10000^(-2i/width). width
// must be even.
at::Tensor sinusoidal_positions(std::int64_t length, std::int64_t width);

// A number that changes whenever a run's trial, before its first step, chooses another implementation (Millrace's or LibTorch's)
// for an operation. Results from before the change have other bits.
[[nodiscard]] std::uint64_t implementation_changes() noexcept;

}  // namespace millrace::nn
