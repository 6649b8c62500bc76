// What recipes call: every function takes the fused kernel or the plain ATen path, by a flag a recipe fills from the switchboard.
// Both paths draw the same random bits and one key per site, so switching a path changes no other result. Under autocast matrix
// products run in its type, residuals stay fp32, norms and losses compute in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "millrace/base/error.h"

namespace millrace::nn {

// true = the fused kernel of kernels/kernels.h, false = its plain path:
struct Paths {
  bool fused_dropout = true;    // a mask of the scalar reference: drops the same elements; tolerance where fused with others
  bool fused_attention = true;  // explicit (T, T) scores, softmax, mask; equal within tolerance
  bool fused_norm = true;       // dropout, add and at::layer_norm one after the other; tolerance
  bool fused_gelu = true;       // at::gelu, then dropout; kept for the backward pass; tolerance
  bool fused_loss = true;       // log_softmax and nll_loss in fp32; tolerance
  bool weight_cache = true;     // under bf16: at::linear (autocast casts the weight in every forward pass); tolerance
  bool packed_qkv = true;       // three products for queries, keys and values; tolerance
  bool fp32_products = true;    // in fp32: at::linear; tolerance
};

// p is the probability to drop: pass 0 outside training. With p = 0 no key is drawn.
at::Tensor dropout(const at::Tensor& x, double p, const Paths& paths);
// residual + dropout(x), in the residual's dtype.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, const Paths& paths);
// dropout(gelu(x)), exact GELU.
at::Tensor gelu_dropout(const at::Tensor& x, double p, const Paths& paths);

// x W^T + b; bias may be undefined. Under autocast the result has autocast's dtype.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Paths& paths);
// GELU, tanh's approximation of it, or x sigmoid(1.702 x), which CLIP was trained with.
enum class Gelu : std::uint8_t { exact, tanh, quick };
at::Tensor gelu(const at::Tensor& x, Gelu kind);
// linear() of gelu(x) of that kind. x alone is kept for the backward pass on a CPU, in bf16 where the product is ours.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Gelu kind, const Paths& paths);

// Layer norm over the last dimension. Under autocast the result has autocast's dtype (it feeds a matrix product), else x's.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const Paths& paths);
// The step between two branches of a pre-norm block: residual' = residual + dropout(x), y = layer_norm(residual').
// Returns {residual', y}.
std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double eps, double p,
                                                         const Paths& paths);

// softmax(q k^T / sqrt(D), causal) v with dropout on the weights; all (B, T, H, D), any strides.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p, const Paths& paths);

// Weights and biases of the three input projections of self-attention, each (C, C) and (C); biases all defined or all undefined.
struct QkvWeights {
  at::Tensor w_q, b_q, w_k, b_k, w_v, b_v;
};
// Causal self-attention of x (B, T, C) up to and without the output projection: result (B, T, C).
at::Tensor causal_self_attention(const at::Tensor& x, const QkvWeights& weights, std::int64_t heads, double p,
                                 const Paths& paths);

// softmax(q k^T / sqrt(D)) v of an encoder: qkv (B, T, 3 C) has queries, keys and values side by side; result (B, T, C).
at::Tensor full_self_attention(const at::Tensor& qkv, std::int64_t heads, const Paths& paths);

// Cross-entropy summed over rows, computed in fp32: logits (..., V), target (...) int64; rows with target == ignore_index count
// nothing. Returns {sum (differentiable), count}, fp32 scalars. DataError for other shapes and types; RowError for a target
// outside 0..V-1 on the CPU (on a GPU LibTorch ends the process). A classifier's loss is nn/cross_entropy.h.
std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, std::int64_t ignore_index,
                                                    const Paths& paths);

// (length, width) fp32: column 2i is sin(p w_i), column 2i+1 cos(p w_i), w_i = 10000^(-2i/width). width must be even.
at::Tensor sinusoidal_positions(std::int64_t length, std::int64_t width);

// Another number when the way of an operation was chosen anew, ours or LibTorch's (a run's trial chooses, before its first step):
// results that are kept from before have other bits than those of now.
[[nodiscard]] std::uint64_t ways_so_far() noexcept;

}  // namespace millrace::nn
