#include "millrace/kernels/smooth_leaky.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/pointwise.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {
namespace {

at::Tensor run(const at::Tensor& x, const at::Tensor& gradient) { return pointwise(Pointwise::smooth_leaky, x, gradient); }

struct SmoothLeakyFunction : torch::autograd::Function<SmoothLeakyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor input = x.is_non_overlapping_and_dense() ? x : x.contiguous();
    context->save_for_backward({input});
    return run(input, {});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("a smooth leaky ReLU");
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor& gradient = gradients[0];
    return {run(x, gradient.strides() == x.strides() ? gradient : at::empty_like(x).copy_(gradient))};
  }
};

}  // namespace

at::Tensor smooth_leaky(const at::Tensor& x) {
  if (!has_kernel(x) && !has_device_kernel(x)) return widened(x, smooth_leaky_plain);
  const OperationSpan span("millrace::smooth_leaky", x);
  return SmoothLeakyFunction::apply(x);
}

at::Tensor smooth_leaky_plain(const at::Tensor& x) {
  const at::Tensor values = wide(x), size = values.abs();
  const at::Tensor middle = values * values - size * size * size / 3.0 + values * 2.0 + 1.0 / 3.0;
  return (at::where(values < -1.0, values, at::where(values < 1.0, middle, values * 3.0)) / 3.5).to(x.scalar_type());
}

}  // namespace millrace::kernels
