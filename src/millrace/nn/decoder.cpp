#include "millrace/nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/core/random.h"
#include "millrace/kernels/decoder.h"
#include "millrace/kernels/device_decoder.h"
#include "millrace/kernels/device_lora.h"
#include "millrace/kernels/lora_linear.h"
#include "millrace/kernels/product.h"
#include "millrace/nn/detail/operation_trials.h"

namespace millrace::nn {
namespace {

at::ScalarType result_type(const at::Tensor& x) {
  const auto device = x.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

// Rotates x (B, T, H, w) by the angles with these cos and sin, which are (T, w / 2) or (B, 1, w / 2).
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half).to(at::kFloat), b = x.narrow(-1, half, half).to(at::kFloat);
  const at::Tensor c = cos.unsqueeze(-2), s = sin.unsqueeze(-2);
  return at::cat({a * c - b * s, b * c + a * s}, -1).to(x.scalar_type());
}

bool is_kernel_type(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; }

// True if the kernels can use these angles, whose table must be on the CPU.
bool turns(const at::Tensor& x, const Rotary& rotary, const Fused& fused) {
  return choose<kFusedRotary, kFusedAttention>(fused, kernels::has_decoder_kernels(x) && rotary.cos.is_cpu());
}

at::Tensor heads_of(const at::Tensor& x, std::int64_t heads) { return x.unflatten(2, {heads, x.size(2) / heads}); }

// Returns the `parts` that stand side by side in `packed`, as heads; all but the last part are rotated.
std::vector<at::Tensor> turned_parts(const at::Tensor& packed, std::int64_t parts, const Rotary& rotary, std::int64_t heads,
                                     const Fused& fused) {
  // The table of angles may be longer than the sequence, as for the kernels on a CPU.
  const at::Tensor cos = rotary.cos.narrow(0, 0, packed.size(1)), sin = rotary.sin.narrow(0, 0, packed.size(1));
  if (kernels::has_device_turn(packed, parts, heads, cos) && choose<kFusedRotary>(fused))
    return kernels::device_turn_parts(packed, parts, parts - 1, heads, cos, sin);
  // Uses unbind, because its backward pass joins the parts' gradients in one copy.
  std::vector<at::Tensor> all = packed.unflatten(-1, {parts, packed.size(-1) / parts}).unbind(-2);
  for (at::Tensor& part : all) part = heads_of(part, heads);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i] = turned(all[i], cos, sin);
  return all;
}

bool rms_fits_device(const at::Tensor& x, const at::Tensor& weight) {
  return kernels::has_device_rows(x) && weight.device() == x.device() && weight.dim() == 1 && weight.size(0) == x.size(-1);
}

// y + scale x W^T in one product.
at::Tensor added_product(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, double scale) {
  const auto rows = [](const at::Tensor& all) { return all.reshape({-1, all.size(-1)}); };
  return at::addmm(rows(y), rows(x), weight.to(x.scalar_type()).t(), 1, scale).view(y.sizes());
}

std::vector<kernels::LoraWeights> weights_of(const std::vector<LoraProjection>& projections) {
  std::vector<kernels::LoraWeights> all;
  all.reserve(projections.size());
  for (const LoraProjection& one : projections) all.push_back({one.weight, one.bias, one.lora_a, one.lora_b});
  return all;
}

kernels::Dropout next_dropout(const at::Tensor& x, double p) {
  if (p <= 0.0) return {};
  RandomScope::Site drawn = RandomScope::next_site(x.numel());
  count_taken<kFusedDropout>();
  return {p, drawn.key, drawn.first, std::move(drawn.runs), drawn.on_device};
}

// True if one call of kernels::lora_linear() computes all projections, on the CPU.
bool merges(const at::Tensor& x, const std::vector<LoraProjection>& projections, double p, const Fused& fused) {
  const at::ScalarType type = result_type(x);
  if (!kernels::has_decoder_kernels(x) || !is_kernel_type(type) || (p > 0.0 && !fused.on(kFusedDropout))) return false;
  if (!fused.on(type == at::kBFloat16 ? kBf16Weights : kFp32Products)) return false;
  const bool fits = std::ranges::all_of(projections, [&](const LoraProjection& one) {
    return one.weight.is_cpu() && one.bias.defined() == projections.front().bias.defined();
  });
  return choose<kMergedLora>(fused, fits);
}

bool merges_on_device(const at::Tensor& x, const std::vector<kernels::LoraWeights>& projections, double p, const Fused& fused) {
  const bool may_drop = p <= 0.0 || fused.on(kFusedDropout);
  return may_drop && kernels::has_device_lora(x, projections) && choose<kMergedLora>(fused);
}

at::Tensor merged(const at::Tensor& x, const std::vector<LoraProjection>& projections, double scale, double p) {
  const kernels::Dropout site = next_dropout(x, p);
  if (result_type(x) == at::kBFloat16) {
    count_taken<kBf16Weights>();
  } else if (kernels::own_fp32_products()) {
    count_taken<kFp32Products>();
  }
  return kernels::lora_linear(x.to(result_type(x)), weights_of(projections), scale, site);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const Fused& fused) {
  if (choose<kFusedRmsRows>(fused, kernels::has_decoder_kernels(x) && is_kernel_type(result_type(x))))
    return kernels::rms_rows(x, weight.to(at::kFloat), eps, result_type(x));
  if (rms_fits_device(x, weight) && choose<kFusedRmsRows>(fused))
    return kernels::device_rms_rows(x, {}, weight.to(at::kFloat), eps, result_type(x)).second;
  const at::Tensor values = x.to(at::kFloat);
  return (values * (values.square().mean(-1, true) + eps).rsqrt() * weight.to(at::kFloat)).to(result_type(x));
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double eps, const Fused& fused) {
  const bool fits = branch.scalar_type() == result_type(residual) && kernels::has_decoder_kernels(residual) &&
                    kernels::has_decoder_kernels(branch) && branch.sizes().equals(residual.sizes());
  if (choose<kFusedRmsRows>(fused, fits)) return kernels::add_rms_rows(branch, residual, weight.to(at::kFloat), eps);
  const bool fits_device = branch.scalar_type() == result_type(residual) && branch.sizes().equals(residual.sizes()) &&
                           kernels::has_device_rows(branch) && rms_fits_device(residual, weight);
  if (fits_device && choose<kFusedRmsRows>(fused))
    return kernels::device_rms_rows(residual, branch, weight.to(at::kFloat), eps, branch.scalar_type());
  at::Tensor sum = residual + branch.to(residual.scalar_type());
  at::Tensor y = rms_norm(sum, weight, eps, fused);
  return {std::move(sum), std::move(y)};
}

at::Tensor swiglu(const at::Tensor& packed, const Fused& fused) {
  if (choose<kFusedSwiglu>(fused, kernels::has_decoder_kernels(packed))) return kernels::swiglu(packed);
  if (kernels::has_device_rows(packed) && packed.size(-1) % 16 == 0 && choose<kFusedSwiglu>(fused))
    return kernels::device_swiglu(packed);
  const auto halves = packed.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

Rotary rotary_table(std::int64_t length, std::int64_t head_width, double base, at::Device device) {
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor rates = (at::arange(0, head_width, 2, fp64) * (-std::log(base) / static_cast<double>(head_width))).exp();
  const at::Tensor angles = at::arange(0, length, 1, fp64).unsqueeze(1) * rates;
  return {angles.cos().to(device, at::kFloat), angles.sin().to(device, at::kFloat)};
}

at::Tensor rotary_attention(const at::Tensor& qkv, const Rotary& rotary, std::int64_t heads, const Fused& fused) {
  if (turns(qkv, rotary, fused) &&
      detail::attention_takes_ours({qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)}, qkv.scalar_type(), 0)) {
    return kernels::rotary_attention_packed(qkv, rotary.cos, rotary.sin, heads);
  }
  const auto parts = turned_parts(qkv, 3, rotary, heads, fused);
  return causal_attention(parts[0], parts[1], parts[2], 0, fused).flatten(2);
}

at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const Rotary& rotary,
                               std::int64_t heads, const Fused& fused) {
  if (turns(kv, rotary, fused) && q.scalar_type() == kv.scalar_type()) {
    return kernels::rotary_attention_at(q, kv, positions, rotary.cos, rotary.sin, heads);
  }
  const auto parts = turned_parts(kv, 2, rotary, heads, fused);
  const at::Tensor cos = rotary.cos.index_select(0, positions).unsqueeze(1),
                   sin = rotary.sin.index_select(0, positions).unsqueeze(1);
  const at::Tensor queries = turned(heads_of(q, heads), cos, sin).transpose(1, 2);
  const at::Tensor keys = parts[0].transpose(1, 2);
  const at::Tensor seen = at::arange(kv.size(1), positions.options()).unsqueeze(0) <= positions.unsqueeze(1);
  return at::scaled_dot_product_attention(queries, keys, parts[1].transpose(1, 2), seen.unsqueeze(1).unsqueeze(1))
      .transpose(1, 2)
      .flatten(2);
}

at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraProjection>& projections, double scale, double p,
                       const Fused& fused) {
  bool adapts = false;
  for (const LoraProjection& one : projections) adapts = adapts || one.lora_a.defined();
  if (!adapts) p = 0.0;
  if (merges(x, projections, p, fused)) return merged(x, projections, scale, p);
  if (const auto weights = weights_of(projections); merges_on_device(x, weights, p, fused))
    return kernels::device_lora_linear(x.to(result_type(x)), weights, scale, next_dropout(x, p));
  const at::Tensor dropped = adapts ? dropout(x, p, fused) : at::Tensor();
  std::vector<at::Tensor> results;
  for (const LoraProjection& one : projections) {
    const at::ScalarType type = result_type(x);
    const auto as = [&](const at::Tensor& weight) { return weight.defined() ? weight.to(type) : weight; };
    at::Tensor y = linear(x, as(one.weight), as(one.bias), fused);
    if (one.lora_a.defined()) {
      const at::Tensor narrow = linear(dropped, one.lora_a, {}, fused);
      y = kernels::has_device_rows(narrow) ? added_product(y, narrow, one.lora_b, scale)
                                           : y + linear(narrow, one.lora_b, {}, fused) * scale;
    }
    results.push_back(std::move(y));
  }
  return results.size() == 1 ? results.front() : at::cat(results, -1);
}

at::Tensor lora_swiglu(const at::Tensor& packed, const LoraProjection& projection, double scale, double p, const Fused& fused) {
  const bool is_plain = !projection.lora_a.defined() && !projection.bias.defined() && !projection.weight.requires_grad();
  const bool is_one_type = packed.scalar_type() == result_type(packed) && projection.weight.scalar_type() == packed.scalar_type();
  const bool fits = is_plain && is_one_type && kernels::has_decoder_kernels(packed);
  if (choose<kFusedSwiglu>(fused, fits, [&] { return merges(packed, {projection}, 0.0, fused); }))
    return kernels::swiglu_linear(packed, projection.weight);
  return lora_linear(swiglu(packed, fused), {projection}, scale, p, fused);
}

}  // namespace millrace::nn
