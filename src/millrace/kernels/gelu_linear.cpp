#include "millrace/kernels/gelu_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/pointwise.h"
#include "millrace/kernels/product.h"
#include "millrace/kernels/weight_cache.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kQuick = 1.702;

const char* atens_word(Gelu kind) { return kind == Gelu::tanh ? "tanh" : "none"; }

// Both tensors are contiguous.
at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x, Gelu kind) {
  if (kind == Gelu::quick) return pointwise(Pointwise::quick_gelu, x, gradient);
  return at::gelu_backward(gradient, x, atens_word(kind));
}

struct GeluLinearFunction : torch::autograd::Function<GeluLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, Gelu kind) {
    const auto copy = [&](const at::Tensor& of) { return x.scalar_type() == at::kFloat ? of.contiguous() : bf16_copy(of); };
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous(), w = copy(weight);
    const at::Tensor y = forward_product(gelu(rows, kind), w, bias ? copy(*bias) : at::Tensor());
    context->save_for_backward({rows, w});
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["kind"] = static_cast<std::int64_t>(kind);
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a GELU");
    note_backward();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)}).contiguous();
    const auto kind = static_cast<Gelu>(context->saved_data["kind"].toInt());
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      const at::Tensor dx = gelu_gradient(input_gradient(dy, weight), x, kind);
      result[0] = dx.view(context->saved_data["sizes"].toIntVector());
    }
    const bool has_bias = context->saved_data["bias"].toBool();
    if (context->needs_input_grad(1) || (has_bias && context->needs_input_grad(2))) {
      const WeightGradients sums = weight_gradients(dy, gelu(x, kind), has_bias);
      result[1] = sums.weight;
      result[2] = sums.bias;
    }
    return result;
  }
};

struct QuickGeluFunction : torch::autograd::Function<QuickGeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor input = x.contiguous();
    context->save_for_backward({input});
    return pointwise(Pointwise::quick_gelu, input, {});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a GELU");
    return {gelu_gradient(gradients[0].contiguous(), context->get_saved_variables()[0], Gelu::quick)};
  }
};

bool is_weight(const at::Tensor& w) { return has_kernel(w) && w.scalar_type() == at::kFloat && w.is_leaf(); }

}  // namespace

at::Tensor gelu(const at::Tensor& x, Gelu kind) {
  if (kind != Gelu::quick) return at::gelu(x, atens_word(kind));
  if (!has_kernel(x) && !has_device_kernel(x))
    return widened(x, [](const at::Tensor& values) { return values * at::sigmoid(values * kQuick); });
  const OperationSpan span("millrace::quick_gelu", x);
  return QuickGeluFunction::apply(x);
}

at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Gelu kind) {
  const bool fits = x.dim() > 0 && weight.dim() == 2 && weight.size(1) == x.size(-1) &&
                    (!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)));
  if (!fits || !has_kernel(x) || x.numel() == 0 || !is_weight(weight) || (bias.defined() && !is_weight(bias)))
    return linear(gelu(x, kind), weight, bias);
  return GeluLinearFunction::apply(x, weight, optional(bias), kind);
}

}  // namespace millrace::kernels
