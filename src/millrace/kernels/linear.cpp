#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/operation_trial.h"
#include "millrace/kernels/product.h"
#include "millrace/kernels/weight_cache.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Computes a product (rows, inner) times (inner, columns) by one of the two implementations.
template <class Ours, class Library>
at::Tensor by_implementation_of(Operation operation, at::ScalarType type, std::array<std::int64_t, 3> shape, const Ours& ours,
                                const Library& library) {
  const double work = static_cast<double>(shape[0]) * static_cast<double>(shape[1]) * static_cast<double>(shape[2]);
  const bool goes = takes_ours(
      {operation, type, shape, work}, [&] { (void)ours(); }, [&] { (void)library(); });
  return goes ? ours() : library();
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
    const bool fp32 = x.scalar_type() == at::kFloat;
    const auto side_by_side = [fp32](at::TensorList parts) {
      if (!fp32) return bf16_copy(parts);
      return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts);
    };
    const at::Tensor weight = side_by_side(weights);
    const at::Tensor bias = biases.empty() ? at::Tensor() : side_by_side(biases);
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
    const at::Tensor y = forward_product(rows, weight, bias);
    context->save_for_backward({rows, weight});
    std::vector<std::int64_t> outs;
    for (const at::Tensor& w : weights) outs.push_back(w.size(0));
    context->saved_data["outs"] = outs;
    context->saved_data["bias"] = !biases.empty();
    context->saved_data["sizes"] = x.sizes().vec();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a linear layer");
    note_backward();
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> outs = context->saved_data["outs"].toIntVector();
    const bool has_bias = context->saved_data["bias"].toBool();
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)}).contiguous();
    variable_list result(1 + outs.size() * (has_bias ? 2 : 1));
    if (context->needs_input_grad(0)) {
      result[0] = input_gradient(dy, saved[1]).view(context->saved_data["sizes"].toIntVector());
    }
    bool wants_weights = false;
    for (std::size_t i = 1; i < result.size(); ++i) wants_weights = wants_weights || context->needs_input_grad(i);
    if (!wants_weights) return result;
    const WeightGradients sums = weight_gradients(dy, saved[0], has_bias);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < outs.size(); ++i) {
      result[1 + i] = sums.weight.narrow(0, row, outs[i]);
      if (has_bias) result[1 + outs.size() + i] = sums.bias.narrow(0, row, outs[i]);
      row += outs[i];
    }
    return result;
  }
};

bool fits(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  const auto is_fp32 = [](const at::Tensor& w) { return has_kernel(w) && w.scalar_type() == at::kFloat; };
  const auto has_width = [&](const at::Tensor& w) {
    return w.dim() == 2 && w.size(1) == x.size(-1);
  };  // a weight whose width does not fit goes to ATen, which reports the error
  const auto is_leaf = [](const at::Tensor& w) { return w.is_leaf(); };
  if (!has_kernel(x) || x.numel() == 0 || x.dim() == 0 || !std::ranges::all_of(weights, is_fp32) ||
      !std::ranges::all_of(weights, has_width) || !std::ranges::all_of(biases, is_fp32)) {
    return false;
  }
  for (std::size_t i = 0; i < biases.size(); ++i) {
    if (biases[i].dim() != 1 || biases[i].size(0) != weights[i].size(0)) return false;
  }
  if (x.scalar_type() == at::kFloat) return own_fp32_products() && x.numel() / x.size(-1) >= kProductRows;
  return std::ranges::all_of(weights, is_leaf) && std::ranges::all_of(biases, is_leaf);
}

}  // namespace

WeightGradients weight_gradients(const at::Tensor& dy, const at::Tensor& x, bool wants_bias) {
  const bool fp32 = dy.scalar_type() == at::kFloat;
  WeightGradients sums;
  const auto ours = [&] {
    if (fp32) return product_of_transposed(dy, x, {});
    if (wants_bias) sums.bias = at::empty({dy.size(1)}, dy.options().dtype(at::kFloat));
    return product_of_transposed(dy, x, sums.bias);
  };
  const auto library = [&] {
    sums.bias = at::Tensor();
    return at::mm(dy.t(), x).to(at::kFloat);
  };
  const std::array shape{dy.size(1), dy.size(0), x.size(1)};
  const bool has_ours = !fp32 || dy.size(1) >= kProductRows;
  sums.weight = has_ours ? by_implementation_of(Operation::weight_gradient, dy.scalar_type(), shape, ours, library) : library();
  // ATen sums bf16 in fp32 anyway. If an fp32 result were requested, ATen would first copy the whole operand to fp32.
  if (wants_bias && !sums.bias.defined()) sums.bias = dy.sum(0).to(at::kFloat);
  return sums;
}

at::Tensor forward_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto library = [&] { return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t()); };
  if (x.scalar_type() != at::kFloat || x.size(0) < kProductRows) return library();
  return by_implementation_of(
      Operation::product, at::kFloat, {x.size(0), x.size(1), weight.size(0)},
      [&] { return product_with_transposed(x, weight, bias); }, library);
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  if (dy.scalar_type() != at::kFloat || dy.size(0) < kProductRows) return at::mm(dy, weight);
  return by_implementation_of(
      Operation::input_gradient, at::kFloat, {dy.size(0), dy.size(1), weight.size(1)}, [&] { return product(dy, weight); },
      [&] { return at::mm(dy, weight); });
}

bool own_fp32_products() noexcept {
  const auto is_ours = [](Operation operation) { return implementation_of(operation, at::kFloat) == Implementation::ours; };
  return operation_trial_runs() || is_ours(Operation::product) || is_ours(Operation::input_gradient) ||
         is_ours(Operation::weight_gradient);
}

at::Tensor linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  TORCH_CHECK(!weights.empty() && (biases.empty() || biases.size() == weights.size()), "linear_packed: ", weights.size(),
              " weights and ", biases.size(), " biases");
  if (fits(x, weights, biases)) {
    const OperationSpan span("millrace::linear_packed", x, weights[0]);
    return LinearFunction::apply(x, weights, biases);
  }
  const auto side_by_side = [&](at::TensorList parts) {
    return (parts.size() == 1 ? parts[0] : at::cat(parts)).to(x.scalar_type());
  };
  return at::linear(x, side_by_side(weights), biases.empty() ? std::optional<at::Tensor>() : side_by_side(biases));
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_packed(x, weight, bias.defined() ? at::TensorList(bias) : at::TensorList());
}

}  // namespace millrace::kernels
