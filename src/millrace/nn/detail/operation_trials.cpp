#include "millrace/nn/detail/operation_trials.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_trial.h"
#include "millrace/kernels/plain.h"

namespace millrace::nn::detail {
namespace {

using kernels::Operation;

// The most bytes that one tensor of scores may have. The plain path holds several such tensors at a time.
constexpr double kMostScoreBytes = 256e6;
constexpr double kEpsilon = 1e-5;
// A pass over memory takes as long per element as this many multiplications of a product.
constexpr double kWorkOfAnElement = 100;

}  // namespace

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type) {
  return at::full(sizes, 0.1, at::TensorOptions().dtype(type)).requires_grad_();
}

std::function<void()> forward_and_backward(const Tensors& inputs, std::function<Tensors()> forward) {
  return [inputs, forward = std::move(forward)] {
    const at::AutoGradMode with_gradients(true);
    const Tensors outputs = forward();
    Tensors ones;
    for (const at::Tensor& output : outputs) ones.push_back(at::ones_like(output));
    (void)torch::autograd::grad(outputs, inputs, ones);
  };
}

bool attention_takes_ours(at::IntArrayRef sizes, at::ScalarType type, double p) {
  const double scores = static_cast<double>(sizes[0]) * static_cast<double>(sizes[2]) * static_cast<double>(sizes[1]) *
                        static_cast<double>(sizes[1]);
  if (type != at::kFloat && type != at::kBFloat16) return true;
  if (!kernels::operation_trial_runs() || scores * 4 > kMostScoreBytes)
    return kernels::implementation_of(Operation::attention, type) == kernels::Implementation::ours;
  const Tensors qkv{leaf(sizes, type), leaf(sizes, type), leaf(sizes, type)};
  const kernels::Dropout site{.p = p, .key = 1};
  at::Tensor keep;
  if (p > 0) keep = kernels::dropout_mask({sizes[0], sizes[2], sizes[1], sizes[1]}, site);
  std::vector<std::int64_t> shape = sizes.vec();
  shape.push_back(p > 0 ? 1 : 0);
  return kernels::takes_ours(
      {Operation::attention, type, shape, scores * static_cast<double>(sizes[3])},
      forward_and_backward(qkv, [&] { return Tensors{kernels::causal_attention(qkv[0], qkv[1], qkv[2], site)}; }),
      forward_and_backward(qkv, [&] { return Tensors{kernels::causal_attention_with_mask(qkv[0], qkv[1], qkv[2], keep, p)}; }));
}

bool full_attention_takes_ours(const at::Tensor& qkv, std::int64_t heads) {
  const at::ScalarType type = qkv.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return true;
  const auto rows = static_cast<double>(qkv.size(1));
  const double work = static_cast<double>(qkv.size(0)) * rows * rows * static_cast<double>(qkv.size(2)) / 3;
  if (!kernels::operation_trial_runs())
    return kernels::implementation_of(Operation::full_attention, type) == kernels::Implementation::ours;
  const bool learns = at::GradMode::is_enabled() && qkv.requires_grad();
  const Tensors inputs{leaf(qkv.sizes(), type)};
  const auto whole = [&](const std::function<at::Tensor()>& forward) -> std::function<void()> {
    if (learns) return forward_and_backward(inputs, [forward] { return Tensors{forward()}; });
    return [forward] {
      const at::NoGradGuard no_gradients;
      (void)forward();
    };
  };
  return kernels::takes_ours(
      {Operation::full_attention, type, {qkv.size(0), qkv.size(1), qkv.size(2), heads, learns ? 1 : 0}, work},
      whole([&] { return kernels::full_attention_packed(inputs[0], heads); }),
      whole([&] { return full_attention_plain(inputs[0], heads); }));
}

at::Tensor full_attention_plain(const at::Tensor& qkv, std::int64_t heads) {
  const std::vector<at::Tensor> parts = qkv.view({qkv.size(0), qkv.size(1), 3, heads, -1}).unbind(2);
  const auto part = [&](std::size_t i) { return parts[i].transpose(1, 2); };
  return at::scaled_dot_product_attention(part(0), part(1), part(2)).transpose(1, 2);
}

bool norm_takes_ours(const at::Tensor& x, at::ScalarType residual_type, double p) {
  const at::ScalarType type = x.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return true;
  if (!kernels::operation_trial_runs()) return kernels::implementation_of(Operation::norm, type) == kernels::Implementation::ours;
  const std::int64_t width = x.size(-1);
  const Tensors inputs{leaf(x.sizes(), type), leaf(x.sizes(), residual_type), leaf({width}, at::kFloat),
                       leaf({width}, at::kFloat)};
  const kernels::Dropout site{.p = p, .key = 1};
  const auto fused = [&] {
    auto [sum, y] = kernels::dropout_add_layer_norm(inputs[0], inputs[1], inputs[2], inputs[3], kEpsilon, site);
    return Tensors{sum, y};
  };
  const auto plain = [&] {
    const at::Tensor sum = kernels::dropout_add(inputs[0], inputs[1], site);
    return Tensors{sum, at::layer_norm(sum, {width}, inputs[2], inputs[3], kEpsilon).to(type)};
  };
  const double elements = static_cast<double>(x.numel());
  return kernels::takes_ours({Operation::norm, type, {x.numel() / width, width, p > 0 ? 1 : 0}, kWorkOfAnElement * elements},
                             forward_and_backward(inputs, fused), forward_and_backward(inputs, plain));
}

}  // namespace millrace::nn::detail
