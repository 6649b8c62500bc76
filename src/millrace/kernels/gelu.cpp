#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

// All tensors are contiguous; `gradient` is undefined in the forward pass.
at::Tensor run(const at::Tensor& x, const at::Tensor& gradient, const Dropout& site) {
  at::Tensor out = at::empty_like(x);
  const detail::GeluArgs args{.x = x.const_data_ptr(),
                              .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                              .out = out.mutable_data_ptr(),
                              .type = type_of(x),
                              .count = x.numel(),
                              .keep = {}};
  run_gelu(args, site, x.device());
  return out;
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Dropout& site) {
    remember(context, site);
    const at::Tensor input = x.contiguous();
    context->save_for_backward({input});
    return run(input, {}, site);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("a GELU");
    return {run(context->get_saved_variables()[0], gradients[0].contiguous(), remembered(context)), {}};
  }
};

}  // namespace

at::Tensor gelu_dropout(const at::Tensor& x, const Dropout& site) {
  if (!has_kernel(x) && !has_device_kernel(x)) return dropout(at::gelu(x), site);
  const OperationSpan span("millrace::gelu_dropout", x);
  return GeluFunction::apply(x, site);
}

}  // namespace millrace::kernels
