#include "millrace/kernels/device_linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
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

at::Tensor side_by_side(at::TensorList parts, at::ScalarType type) {
  return (parts.size() == 1 ? parts[0] : at::cat(parts)).to(type);
}

struct DeviceLinear : torch::autograd::Function<DeviceLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
    const at::Tensor narrow = side_by_side(weights, x.scalar_type());
    context->save_for_backward({x, narrow});
    context->saved_data["weight"] = static_cast<std::int64_t>(weights[0].scalar_type());
    context->saved_data["bias"] = static_cast<std::int64_t>(biases[0].scalar_type());
    std::vector<std::int64_t> outs;
    for (const at::Tensor& weight : weights) outs.push_back(weight.size(0));
    context->saved_data["outs"] = outs;
    return at::linear(x, narrow, side_by_side(biases, x.scalar_type()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a linear layer");
    const variable_list saved = context->get_saved_variables();
    const auto type = [&](const char* of) { return static_cast<at::ScalarType>(context->saved_data[of].toInt()); };
    const at::Tensor dy = for_kernel(gradients[0].reshape({-1, gradients[0].size(-1)}));
    const std::vector<std::int64_t> outs = context->saved_data["outs"].toIntVector();
    const auto wants = [&](std::size_t first) {
      for (std::size_t i = 0; i < outs.size(); ++i)
        if (context->needs_input_grad(first + i)) return true;
      return false;
    };
    at::Tensor dx, dw, db;
    if (context->needs_input_grad(0)) dx = at::mm(dy, saved[1]).view(saved[0].sizes());
    if (wants(1)) dw = at::mm(dy.t(), saved[0].reshape({-1, saved[0].size(-1)})).to(type("weight"));
    if (wants(1 + outs.size())) db = column_sums(dy).to(type("bias"));
    variable_list result = {dx};
    for (const at::Tensor& whole : {dw, db}) {
      std::int64_t row = 0;
      for (const std::int64_t out : outs) {
        result.push_back(whole.defined() ? whole.narrow(0, row, out) : at::Tensor());
        row += out;
      }
    }
    return result;
  }
};

}  // namespace

bool has_device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return has_device_kernel(x) && bias.defined() && x.dim() > 1 && x.numel() > 0 && weight.dim() == 2 && weight.size(0) > 0 &&
         bias.dim() == 1 && weight.device() == x.device() && weight.size(0) * x.element_size() % kPieceBytes == 0;
}

at::Tensor device_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return device_linear_packed(x, weight, bias);
}

at::Tensor device_linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  const OperationSpan span("millrace::linear", x, weights[0]);
  return DeviceLinear::apply(x, weights, biases);
}

}  // namespace millrace::kernels
