#include "millrace/nn/functional.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/kernels/device_linear.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/gelu_linear.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_trial.h"
#include "millrace/kernels/plain.h"
#include "millrace/kernels/product.h"
#include "millrace/nn/detail/labels.h"
#include "millrace/nn/detail/operation_trials.h"

namespace millrace::nn {
namespace {

// Draws one key per site on every path, so that turning off a path does not change the bits of other sites.
kernels::Dropout next_site(double p, std::int64_t elements) {
  if (p <= 0.0) return {};
  RandomScope::Site site = RandomScope::next_site(elements);
  return {p, site.key, site.first, std::move(site.runs), site.on_device};
}

std::int64_t attention_weights(std::int64_t rows, std::int64_t length, std::int64_t heads) {
  return rows * heads * length * length;
}

// True if a fused operation may include this site's dropout. Counts a call under the switch only if the site drops elements.
bool fuses_dropout(const kernels::Dropout& site, const Fused& fused) {
  return site.p > 0.0 ? choose<kFusedDropout>(fused) : fused.on(kFusedDropout);
}

at::Tensor dropout_at(const at::Tensor& x, const kernels::Dropout& site, const Fused& fused) {
  if (site.p <= 0.0) return x;
  if (choose<kFusedDropout>(fused)) return kernels::dropout(x, site);
  return kernels::dropout_with_mask(x, kernels::dropout_mask(x.sizes(), site, x.device()), site.p);
}

at::Tensor dropout_add_at(const at::Tensor& x, const at::Tensor& residual, const kernels::Dropout& site, const Fused& fused) {
  if (fuses_dropout(site, fused)) return kernels::dropout_add(x, residual, site);
  return residual + dropout_at(x.to(residual.scalar_type()), site, fused);
}

// The type in which autocast computes matrix products; nullopt if autocast is off.
std::optional<at::ScalarType> autocast_type(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

// Casts x as autocast would, because the kernels need x in that type.
at::Tensor for_product(const at::Tensor& x) {
  const auto type = autocast_type(x);
  return type && x.scalar_type() == at::kFloat ? x.to(*type) : x;
}

// True if kernels::linear multiplies this input, which for_product() has returned.
bool takes_own_product(const at::Tensor& input, const Fused& fused) {
  if (input.scalar_type() == at::kBFloat16) return choose<kBf16Weights>(fused, input.is_cpu());
  return choose<kFp32Products>(fused, input.is_cpu() && input.scalar_type() == at::kFloat, kernels::own_fp32_products);
}

// True if kernels of Millrace on the device multiply this input with a linear layer's weight.
bool takes_device_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused) {
  if (!kernels::has_device_linear(input, weight, bias)) return false;
  return input.scalar_type() == at::kFloat ? choose<kFp32Products>(fused) : choose<kBf16Weights>(fused);
}

bool packs_on_device(const at::Tensor& input, const QkvWeights& w, const Fused& fused) {
  return w.w_k.sizes().equals(w.w_q.sizes()) && w.w_v.sizes().equals(w.w_q.sizes()) &&
         takes_device_linear(input, w.w_q, w.b_q, fused) && kernels::has_device_linear(input, w.w_k, w.b_k) &&
         kernels::has_device_linear(input, w.w_v, w.b_v);
}

bool all_defined(const QkvWeights& w) { return w.b_q.defined() && w.b_k.defined() && w.b_v.defined(); }

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const Fused& fused) { return dropout_at(x, next_site(p, x.numel()), fused); }

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, const Fused& fused) {
  return dropout_add_at(x, residual, next_site(p, x.numel()), fused);
}

at::Tensor gelu_dropout(const at::Tensor& x, double p, const Fused& fused) {
  const kernels::Dropout site = next_site(p, x.numel());
  if (!choose<kFusedGelu>(fused)) return dropout_at(at::gelu(x), site, fused);
  if (site.p <= 0.0 || choose<kFusedDropout>(fused)) return kernels::gelu_dropout(x, site);
  return dropout_at(kernels::gelu_dropout(x, {}), site, fused);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused) {
  const at::Tensor input = for_product(x);
  if (takes_own_product(input, fused)) return kernels::linear(input, weight, bias);
  if (takes_device_linear(input, weight, bias, fused)) return kernels::device_linear(input, weight, bias);
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

at::Tensor gelu(const at::Tensor& x, Gelu kind) { return kernels::gelu(x, kind); }

at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Gelu kind, const Fused& fused) {
  const at::Tensor input = for_product(x);
  // An fp32 layer always calls kernels::gelu_linear, which uses the faster product, Millrace's or the library's.
  const auto ours = [&] { return input.scalar_type() == at::kFloat || takes_own_product(input, fused); };
  if (choose<kFusedGelu>(fused, input.is_cpu(), ours)) return kernels::gelu_linear(input, weight, bias, kind);
  return linear(nn::gelu(x, kind), weight, bias, fused);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const Fused& fused) {
  const at::ScalarType out = autocast_type(x).value_or(x.scalar_type());
  if (choose<kFusedNorm>(fused)) return kernels::layer_norm(x, weight, bias, eps, out);
  return at::layer_norm(x, weight.sizes(), weight, bias, eps).to(out);
}

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double eps, double p,
                                                         const Fused& fused) {
  const kernels::Dropout site = next_site(p, x.numel());
  const bool types_agree = x.scalar_type() == autocast_type(x).value_or(residual.scalar_type());
  const bool may_fuse = types_agree && fused.on(kFusedDropout);
  const auto faster = [&] { return !x.is_cpu() || detail::norm_takes_ours(x, residual.scalar_type(), site.p); };
  if (choose<kFusedNorm>(fused, may_fuse, faster)) {
    (void)fuses_dropout(site, fused);
    return kernels::dropout_add_layer_norm(x, residual, weight, bias, eps, site);
  }
  const at::Tensor sum = dropout_add_at(x, residual, site, fused);
  if (!may_fuse || !fused.on(kFusedNorm)) return {sum, layer_norm(sum, weight, bias, eps, fused)};
  return {sum, at::layer_norm(sum, weight.sizes(), weight, bias, eps).to(x.scalar_type())};
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p, const Fused& fused) {
  const kernels::Dropout site = next_site(p, attention_weights(q.size(0), q.size(1), q.size(2)));
  if (fused.on(kFusedAttention)) {
    const at::Tensor queries = for_product(q);
    const auto faster = [&] { return !q.is_cpu() || detail::attention_takes_ours(q.sizes(), queries.scalar_type(), site.p); };
    if (choose<kFusedAttention>(fused, true, faster))
      return kernels::causal_attention(queries, for_product(k), for_product(v), site);
    if (site.p > 0.0) {
      const at::Tensor keep = kernels::dropout_mask({q.size(0), q.size(2), q.size(1), q.size(1)}, site);
      return kernels::causal_attention_with_mask(queries, for_product(k), for_product(v), keep, site.p);
    }
  }
  at::Tensor keep;
  if (site.p > 0.0) keep = kernels::dropout_mask({q.size(0), q.size(2), q.size(1), q.size(1)}, site, q.device());
  return kernels::causal_attention_with_mask(q, k, v, keep, site.p);
}

at::Tensor causal_self_attention(const at::Tensor& x, const QkvWeights& weights, std::int64_t heads, double p,
                                 const Fused& fused) {
  if (weights.b_k.defined() != weights.b_q.defined() || weights.b_v.defined() != weights.b_q.defined()) {
    throw RecipeError({"some projections of a self-attention have a bias and some have none", "nn::causal_self_attention",
                       "give a bias to all three projections or to none; a frozen bias of zeros can stand for a missing bias"});
  }
  const at::Tensor input = for_product(x);
  const std::array sizes{x.size(0), x.size(1), heads, weights.w_q.size(0) / heads};
  const auto faster = [&] {
    return takes_own_product(input, fused) && detail::attention_takes_ours(sizes, input.scalar_type(), p);
  };
  if (choose<kFusedAttention>(fused, true, faster)) {
    const std::array<at::Tensor, 3> w{weights.w_q, weights.w_k, weights.w_v};
    const std::array<at::Tensor, 3> b{weights.b_q, weights.b_k, weights.b_v};
    const at::Tensor qkv = kernels::linear_packed(input, w, all_defined(weights) ? at::TensorList(b) : at::TensorList());
    return kernels::causal_attention_packed(qkv, heads, next_site(p, attention_weights(x.size(0), x.size(1), heads))).flatten(2);
  }
  if (packs_on_device(input, weights, fused)) {
    const std::array<at::Tensor, 3> w{weights.w_q, weights.w_k, weights.w_v};
    const std::array<at::Tensor, 3> b{weights.b_q, weights.b_k, weights.b_v};
    const std::vector<at::Tensor> parts =
        kernels::device_linear_packed(input, w, b).unflatten(2, {3, heads, weights.w_q.size(0) / heads}).unbind(2);
    return causal_attention(parts[0], parts[1], parts[2], p, fused).flatten(2);
  }
  const auto split = [heads](const at::Tensor& y) { return y.unflatten(2, {heads, y.size(2) / heads}); };
  return causal_attention(split(linear(input, weights.w_q, weights.b_q, fused)),
                          split(linear(input, weights.w_k, weights.b_k, fused)),
                          split(linear(input, weights.w_v, weights.b_v, fused)), p, fused)
      .flatten(2);
}

at::Tensor full_self_attention(const at::Tensor& qkv, std::int64_t heads, const Fused& fused) {
  const auto faster = [&] { return detail::full_attention_takes_ours(qkv, heads); };
  if (choose<kFusedAttention>(fused, qkv.is_cpu(), faster)) return kernels::full_attention_packed(qkv, heads).flatten(2);
  return detail::full_attention_plain(qkv, heads).flatten(2);
}

std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, std::int64_t ignore_index,
                                                    const Fused& fused) {
  detail::check_labels(logits, target);
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
  const at::Tensor targets = target.reshape({-1});
  return detail::naming_bad_labels(target, logits.size(-1), ignore_index, [&]() -> std::pair<at::Tensor, at::Tensor> {
    if (choose<kFusedLoss>(fused)) return kernels::cross_entropy_sum(rows, targets, ignore_index);
    const at::Tensor logs = at::log_softmax(rows.to(at::kFloat), 1);
    return {at::nll_loss(logs, targets, {}, at::Reduction::Sum, ignore_index), targets.ne(ignore_index).sum().to(at::kFloat)};
  });
}

at::Tensor sinusoidal_positions(std::int64_t length, std::int64_t width) {
  MR_CHECK(width % 2 == 0, "sinusoidal positions need an even width");
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor rates = (at::arange(0, width, 2, fp64) * (-std::log(10000.0) / static_cast<double>(width))).exp();
  const at::Tensor angles = at::arange(0, length, 1, fp64).unsqueeze(1) * rates;
  return at::stack({angles.sin(), angles.cos()}, 2).reshape({length, width}).to(at::kFloat);
}

std::uint64_t implementation_changes() noexcept { return kernels::implementation_changes(); }

}  // namespace millrace::nn
