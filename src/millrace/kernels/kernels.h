// Fused CPU kernels for operations that ATen computes serially or in many passes: dropout, attention with dropout, residual +
// norm, GELU, cross-entropy. All are differentiable, support fp32 and bf16 and any shape, and have a portable path; AVX2 and
// AVX-512 paths are chosen at run time. Random bits come from Philox with the given key, so forward and backward agree, and every
// path draws the same bits.
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

// Defines an element's keep bit: element i of a site (row-major index, counted from `first`) is kept if the i-th 16-bit word of
// the Philox stream is >= round(p * 65536). Stream: block b = philox4x32({b, b >> 32, 0, 0}, key); the order of the 8 words of 16
// consecutive blocks within 128 elements is fixed and specified in detail/dropout_map.h. Kept elements are scaled by 1 / (1 - p).
struct Dropout {
  double p = 0.0;         // 0 = off (no numbers drawn)
  std::uint64_t key = 0;  // of this site; see core/random.h
  // Number of the tensor's first element: a tensor with rows n, n + 1, ... of a larger one drops the same elements as the larger
  // one. Not negative.
  std::int64_t first = 0;
  // The numbers of all elements, run by run, if they are not consecutive: for a tensor with some rows of a larger one, in any
  // order. A run is a number of whole rows (of an attention's weights: of whole heads).
  std::vector<IndexRun> runs = {};
  // In a step that a device records: a detail::RecordedSite in its memory for each run, from which kernels take key and first
  // number when they run. Null otherwise.
  const void* on_device = nullptr;
};

// The kernels this process uses: "amx", "avx512_bf16", "avx512", "avx2" or "portable", the best set that the CPU has and
// MILLRACE_CPU permits (system/instructions.h). In "amx" only attention is written for the tiles; other bf16 products use
// LibTorch's implementation if a trial finds it faster.
[[nodiscard]] std::string_view instruction_set() noexcept;

// dropout(x), or residual + dropout(x). The result has the residual's dtype if there is one (autocast keeps residuals fp32).
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout);

// Scaled dot-product attention with a causal mask and dropout on the weights. q, k, v: (B, T, H, D), any strides with the last
// dimension contiguous (views of one packed projection are fine); result (B, T, H, D) contiguous. scale = 1/sqrt(D) when unset.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Dropout& dropout,
                            std::optional<double> scale = {});

// causal_attention() of queries, keys and values side by side in one tensor (B, T, 3 H D), as linear_packed returns them: their
// gradients also form one tensor, without slicing and adding. Result (B, T, H, D).
at::Tensor causal_attention_packed(const at::Tensor& qkv, std::int64_t heads, const Dropout& dropout,
                                   std::optional<double> scale = {});

// The same packed attention for queries that see all keys, without dropout: the attention of an encoder. Result (B, T, H, D).
at::Tensor full_attention_packed(const at::Tensor& qkv, std::int64_t heads);

// y = layer_norm(x) * weight + bias over the last dimension; y has dtype `out` (default x's).
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      std::optional<at::ScalarType> out = {});
// r' = residual + dropout(x), y = layer_norm(r'): one pass. Returns {r', y}; r' has the residual's dtype, y has x's.
std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double eps,
                                                         const Dropout& dropout);

// dropout(gelu(x)) with the exact (erf) GELU.
at::Tensor gelu_dropout(const at::Tensor& x, const Dropout& dropout);

// Sum over rows of -log softmax(logits)[target], in fp32; rows with target == ignore_index do not count. logits (N, V), target
// (N) int64. Returns {sum (differentiable), count}, both fp32 scalars.
std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target,
                                                    std::int64_t ignore_index = -100);

// x W^T + b with x bf16 and weights kept fp32: the weight's bf16 copy is made once per step (keyed on the tensor's version
// counter) and the weight gradient is accumulated in fp32. x (..., in), weight (out, in), bias (out) or undefined. Each of its
// products uses the implementation that operation_trial.h selects; in fp32, if all three are LibTorch's, this is at::linear.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// Several linear layers of one input as one product: the results side by side in the last dimension. weights: (out_i, in),
// biases: as many (out_i), or an empty list.
at::Tensor linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases);
// ATen's fused optimisers write parameters without raising their version counters. linear guards against it (a backward pass also
// ends a copy's life), but a step after another forward pass would be missed: callers of such an optimiser must call this.
void weights_changed(at::TensorList weights);
// Number of bf16 copies held now. A copy is freed after its weight, at the latest when the next copy is made.
[[nodiscard]] std::size_t weight_copies();

}  // namespace millrace::kernels
