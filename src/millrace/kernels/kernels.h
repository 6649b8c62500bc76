// Fused CPU kernels for operations that ATen computes serially or in many passes: dropout, attention with dropout, residual +
// norm, GELU, cross-entropy. All are differentiable and support fp32 and bf16 and any shape. AVX2 and AVX-512 paths are chosen
// at run time; there is also a portable path. Random bits come from Philox with the given key, so that forward and backward pass
// agree and every path draws the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/index_run.h"

namespace millrace::kernels {

// Defines which elements dropout keeps at a site (one call of a layer that draws random numbers, core/random.h). Element i
// (row-major index, counted from `first`) is kept if its 16 bits of the Philox stream are >= round(p * 65536). Block b of the
// stream is philox4x32({b, b >> 32, 0, 0}, key). 16 consecutive blocks hold the bits of 128 elements, in the order that
// detail/dropout_map.h specifies. Kept elements are scaled by 1 / (1 - p).
struct Dropout {
  double p = 0.0;         // 0 = off (no numbers drawn)
  std::uint64_t key = 0;  // the site's key; see core/random.h
  // Number of the tensor's first element in the site's stream, not negative. A tensor with rows n, n + 1, ... of a larger tensor
  // drops the same elements as the larger tensor.
  std::int64_t first = 0;
  // The elements' numbers in the stream, as runs; empty if all numbers are consecutive. Runs are for a tensor that holds some
  // rows of a larger tensor, in any order. A run covers whole rows (of an attention's weights: whole heads).
  std::vector<IndexRun> runs = {};
  // In a step that a device records: the address on the device of a detail::RecordedSite for each run. Kernels read the key and
  // the number of the run's first element from there when they run. Null in other steps.
  const void* on_device = nullptr;
};

// The set of kernels that this process uses: "amx", "avx512_bf16", "avx512", "avx2" or "portable". This is the best set that the
// CPU has and MILLRACE_CPU permits (system/instructions.h). In "amx" only attention uses the tiles of the matrix unit; other
// bf16 products use LibTorch's implementation if a trial finds it faster.
[[nodiscard]] std::string_view instruction_set() noexcept;

// dropout(x), or residual + dropout(x). The result has the residual's dtype if there is a residual (autocast keeps residuals
// fp32).
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout);

// Scaled dot-product attention with a causal mask and dropout on the weights. q, k, v: (B, T, H, D), any strides with the last
// dimension contiguous (views of one packed projection are fine). Result (B, T, H, D), contiguous. `scale` is 1/sqrt(D) by
// default.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Dropout& dropout,
                            std::optional<double> scale = {});

// causal_attention() of queries, keys and values that stand side by side in one tensor (B, T, 3 H D), as linear_packed() returns
// them. The three gradients also form one tensor, so that no gradients of slices must be added up. Result (B, T, H, D).
at::Tensor causal_attention_packed(const at::Tensor& qkv, std::int64_t heads, const Dropout& dropout,
                                   std::optional<double> scale = {});

// Like causal_attention_packed() but without mask and dropout: each query sees all keys, as in an encoder. Result (B, T, H, D).
at::Tensor full_attention_packed(const at::Tensor& qkv, std::int64_t heads);

// y = layer_norm(x) * weight + bias over the last dimension; y has dtype `out` (default x's).
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      std::optional<at::ScalarType> out = {});
// r' = residual + dropout(x) and y = layer_norm(r') in one pass. Returns {r', y}; r' has the residual's dtype, y has x's.
std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double eps,
                                                         const Dropout& dropout);

// dropout(gelu(x)) with the exact (erf) GELU.
at::Tensor gelu_dropout(const at::Tensor& x, const Dropout& dropout);

// Sum over rows of -log softmax(logits)[target], in fp32; rows with target == ignore_index do not count. logits (N, V), target
// (N) int64. Returns {sum (differentiable), count}, both fp32 scalars.
std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target,
                                                    std::int64_t ignore_index = -100);

// x W^T + b for x in bf16 or fp32 and fp32 weights. If x is bf16, the weight is copied to bf16 once per step, when the weight's
// version counter has changed. The weight's gradient is summed in fp32. x (..., in), weight (out, in), bias (out) or undefined.
// Each of the three products (forward, gradient of x, gradient of the weight) uses the implementation that operation_trial.h
// selects. In fp32, if LibTorch computes all three products, this is at::linear.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// Several linear layers of one input as one product. Their results stand side by side in the last dimension. weights: (out_i,
// in); biases: (out_i) for each weight, or an empty list.
at::Tensor linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases);
// Call this after a step of ATen's fused optimisers, which write parameters without raising their version counters. linear()
// copies the weights again after each backward pass. But if a forward pass runs between the backward pass and the step, it makes
// these copies before the step. Without this call, linear() would go on using them.
void weights_changed(at::TensorList weights);
// Number of bf16 copies of weights held now. The copy of a freed weight is freed at the latest when the next copy is made.
[[nodiscard]] std::size_t weight_copies();

}  // namespace millrace::kernels
