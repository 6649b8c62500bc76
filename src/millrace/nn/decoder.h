// Parts of a LLaMA-like decoder (Touvron et al. 2023, arXiv:2302.13971): RMS norm, rotary positions, gated feed-forward layers,
// and low-rank adapters (LoRA) on frozen projections.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "millrace/nn/functional.h"

namespace millrace::nn {

// If a switch is on, the code does what the comment beside the switch says. If it is off, ATen's operations run one after the
// other; results are equal within tolerance.
inline constexpr Switch kFusedRmsRows{"fused_rms_rows"};  // residual and RMS norm in one pass
inline constexpr Switch kFusedSwiglu{"fused_swiglu"};     // silu(gate) * up in one pass
inline constexpr Switch kFusedRotary{"fused_rotary"};     // queries and keys rotated in place in the packed product
inline constexpr Switch kMergedLora{"merged_lora"};       // adapters of projections with the same input form one narrow product

// y = x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in fp32. y has autocast's type, or x's type without
// autocast.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const Fused& fused);
// Returns sum = residual + branch, in the residual's type, and rms_norm(sum). Do not use `branch` afterwards: the sum may
// overwrite it.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double eps, const Fused& fused);

// silu(gate) * up. `packed` (..., 2 f) holds the f columns of the gate and then those of `up`. The result (..., f) has packed's
// type. Do not use `packed` afterwards: its gradient may overwrite it.
at::Tensor swiglu(const at::Tensor& packed, const Fused& fused);

// cos and sin, (length, head_width / 2) fp32, of the angle p * base^(-2 i / head_width) for position p and pair i.
struct Rotary {
  at::Tensor cos, sin;
};
Rotary rotary_table(std::int64_t length, std::int64_t head_width, double base, at::Device device);
// Causal self-attention with rotary positions; pair i consists of the elements i and i + head_width / 2. `qkv` (B, T, 3 C) holds
// queries, keys and values side by side; the result is (B, T, C). Do not use `qkv` afterwards, because `qkv` may be rotated in
// place.
at::Tensor rotary_attention(const at::Tensor& qkv, const Rotary& rotary, std::int64_t heads, const Fused& fused);
// The attention of rotary_attention() for a single query of each row, q (B, 1, C). kv (B, T, 2 C) holds keys and values;
// `positions` (B) int64 is the position of each query; keys after that position are masked. The result is (B, 1, C). Do not use
// q and kv afterwards.
at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const Rotary& rotary,
                               std::int64_t heads, const Fused& fused);

// A projection and its adapter: y = W x + scale * B A dropout(x). W (out, in) has any float type; A (r, in) and B (out, r) are
// fp32, or undefined without an adapter.
struct LoraProjection {
  at::Tensor weight, bias, lora_a, lora_b;
};
// The results of several projections of one input, side by side in the last dimension. A frozen W gets no gradient. With dropout
// p > 0 all adapters of a call see the same dropped x, and one key is drawn.
at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraProjection>& projections, double scale, double p,
                       const Fused& fused);
// lora_linear() with one projection, applied to swiglu(packed). A frozen projection without an adapter keeps only `packed` for
// the backward pass.
at::Tensor lora_swiglu(const at::Tensor& packed, const LoraProjection& projection, double scale, double p, const Fused& fused);

}  // namespace millrace::nn
