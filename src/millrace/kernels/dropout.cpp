#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

// keep * scale * x (+ residual) in `type`; x and residual are contiguous.
at::Tensor run(const at::Tensor& x, const at::Tensor& residual, at::ScalarType type, const Dropout& site) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(type));
  const detail::DropoutArgs args{.x = x.const_data_ptr(),
                                 .residual = residual.defined() ? residual.const_data_ptr() : nullptr,
                                 .out = out.mutable_data_ptr(),
                                 .x_type = type_of(x),
                                 .out_type = type_of(type),
                                 .count = x.numel(),
                                 .keep = {}};
  run_dropout(args, site, x.device());
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& residual, const Dropout& site) {
    remember(context, site);
    context->saved_data["type"] = static_cast<std::int64_t>(x.scalar_type());
    context->saved_data["residual"] = residual.has_value();
    if (!residual) return run(x.contiguous(), {}, x.scalar_type(), site);
    return run(x.contiguous(), residual->contiguous(), residual->scalar_type(), site);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("a dropout");
    const Dropout site = remembered(context);
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) x_gradient = run(gradients[0].contiguous(), {}, type, site);
    return {x_gradient, context->saved_data["residual"].toBool() ? gradients[0] : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, const Dropout& site) {
  if (site.p <= 0.0) return x;
  if (!has_dropout_kernel(x)) return dropout_with_mask(x, dropout_mask(x.sizes(), site, x.device()), site.p);
  const OperationSpan span("millrace::dropout", x);
  return DropoutFunction::apply(x, std::optional<at::Tensor>(), site);
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Dropout& site) {
  if (!has_dropout_kernel(x) || !has_dropout_kernel(residual) || !x.sizes().equals(residual.sizes())) {
    return residual + dropout(x, site).to(residual.scalar_type());
  }
  const OperationSpan span("millrace::dropout_add", x, residual);
  return DropoutFunction::apply(x, optional(residual), site);
}

}  // namespace millrace::kernels
