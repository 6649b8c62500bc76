// Parts of a decoder in LLaMA's manner (Touvron et al. 2023, arXiv:2302.13971): RMS norm, rotary positions, gated feed-forward
// layers, and low-rank adapters on frozen projections.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "millrace/nn/functional.h"

namespace millrace::nn {

// Where a switch is off, ATen's operations run one after the other; equal within tolerance. Where it is on:
inline constexpr Switch kFusedRmsRows{"fused_rms_rows"};  // residual and RMS norm in one pass
inline constexpr Switch kFusedSwiglu{"fused_swiglu"};     // silu(gate) * up in one pass
inline constexpr Switch kFusedRotary{"fused_rotary"};     // queries and keys turned where they lie in the packed product
inline constexpr Switch kMergedLora{"merged_lora"};       // adapters of projections of one input as one narrow product

// y = x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in fp32. Under autocast y has its type, else x's.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const Fused& fused);
// {residual + branch, rms_norm of it}; the sum has the residual's type. `branch` is not to be used after it: the sum may be
// written over it.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double eps, const Fused& fused);

// silu(gate) * up; `packed` (..., 2 f): the gate's f columns, then those of `up`. Result (..., f) in its type. `packed` is
// not to be used after it: its gradient may be written over it.
at::Tensor swiglu(const at::Tensor& packed, const Fused& fused);

// cos and sin (length, head_width / 2) fp32 of position p and pair i: p * base^(-2 i / head_width).
struct Rotary {
  at::Tensor cos, sin;
};
Rotary rotary_table(std::int64_t length, std::int64_t head_width, double base, at::Device device);
// Causal self-attention with rotary positions (half-split pairs: i with i + head_width / 2): `qkv` (B, T, 3 C), queries, keys and
// values side by side -> (B, T, C). Not to be used after it: it may be turned in place.
at::Tensor rotary_attention(const at::Tensor& qkv, const Rotary& rotary, std::int64_t heads, const Fused& fused);
// The same for queries q (B, 1, C) of one position of each row alone: kv (B, T, 2 C) keys and values, `positions` (B) int64,
// which position each query stands at; keys beyond it are not seen. -> (B, 1, C).
at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const Rotary& rotary,
                               std::int64_t heads, const Fused& fused);

// A projection and its adapter: y = W x + scale * B A dropout(x). W (out, in) of any float type; A (r, in), B (out, r) fp32, or
// undefined: no adapter.
struct LoraProjection {
  at::Tensor weight, bias, lora_a, lora_b;
};
// The results of several projections of one input side by side in the last dimension. A frozen W has no gradient computed. With
// dropout p > 0 all adapters of a call see the same dropped x. Draws one key where p > 0.
at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraProjection>& projections, double scale, double p,
                       const Fused& fused);
// lora_linear() of one projection of swiglu(packed). A frozen one without an adapter keeps nothing but `packed`.
at::Tensor lora_swiglu(const at::Tensor& packed, const LoraProjection& projection, double scale, double p, const Fused& fused);

}  // namespace millrace::nn
