#include "millrace/kernels/device_linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor column_sums(const at::Tensor& matrix) {
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  const std::int64_t blocks = std::clamp<std::int64_t>(rows / 64, 1, 128);
  const at::Tensor parts = at::empty({blocks, columns}, matrix.options().dtype(at::kFloat));
  device_table(matrix.device().type())
      ->column_sums(matrix.const_data_ptr(), type_of(matrix), rows, columns, blocks, parts.mutable_data_ptr<float>(),
                    matrix.device().index());
  return parts.sum(0);
}

struct DeviceLinear : torch::autograd::Function<DeviceLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    const at::Tensor narrow = weight.to(x.scalar_type());
    context->save_for_backward({x, narrow});
    context->saved_data["weight"] = static_cast<std::int64_t>(weight.scalar_type());
    context->saved_data["bias"] = static_cast<std::int64_t>(bias.scalar_type());
    return at::linear(x, narrow, bias.to(x.scalar_type()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto type = [&](const char* of) { return static_cast<at::ScalarType>(context->saved_data[of].toInt()); };
    const at::Tensor dy = for_kernel(gradients[0].reshape({-1, gradients[0].size(-1)}));
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = at::mm(dy, saved[1]).view(saved[0].sizes());
    if (context->needs_input_grad(1)) dw = at::mm(dy.t(), saved[0].reshape({-1, saved[0].size(-1)})).to(type("weight"));
    if (context->needs_input_grad(2)) db = column_sums(dy).to(type("bias"));
    return {dx, dw, db};
  }
};

}  // namespace

bool has_device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return has_device_kernel(x) && bias.defined() && x.dim() > 1 && x.numel() > 0 && weight.dim() == 2 && weight.size(0) > 0 &&
         bias.dim() == 1 && weight.device() == x.device() && weight.size(0) * x.element_size() % kPieceBytes == 0;
}

at::Tensor device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const OperationSpan span("millrace::linear", x, weight);
  return DeviceLinear::apply(x, weight, bias);
}

}  // namespace millrace::kernels
