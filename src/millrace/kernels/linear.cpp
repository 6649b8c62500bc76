#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/weight_cache.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearGradients {
  at::Tensor weight, bias;  // fp32; bias undefined when not wanted
};

// From dy (rows, out) and x (rows, in), bf16 and contiguous.
LinearGradients weight_gradients(const at::Tensor& dy, const at::Tensor& x, bool wants_bias) {
  const std::int64_t rows = dy.size(0);
  const std::int64_t out = dy.size(1);
  const std::int64_t in = x.size(1);
  const auto fp32 = dy.options().dtype(at::kFloat);
  LinearGradients result{at::empty({out, in}, fp32), wants_bias ? at::empty({out}, fp32) : at::Tensor()};
  const std::int64_t pairs = (rows + 1) / 2;
  const std::int64_t y_stride = (out + 47) / 48 * 48;
  const std::int64_t x_panels = (in + 63) / 64;
  const at::Tensor packed = at::empty({pairs * (y_stride + 64 * x_panels)}, dy.options().dtype(at::kInt));
  auto* words = reinterpret_cast<std::uint32_t*>(packed.mutable_data_ptr<int>());
  const detail::WeightGradient args{.y_gradient = static_cast<const std::uint16_t*>(dy.const_data_ptr()),
                                    .x = static_cast<const std::uint16_t*>(x.const_data_ptr()),
                                    .packed_y = words,
                                    .packed_x = words + pairs * y_stride,
                                    .weight_gradient = result.weight.mutable_data_ptr<float>(),
                                    .bias_gradient = wants_bias ? result.bias.mutable_data_ptr<float>() : nullptr,
                                    .rows = rows,
                                    .out = out,
                                    .in = in};
  const detail::Table& table = detail::table();
  parallel((out + 15) / 16 + x_panels,
           [&](std::int64_t begin, std::int64_t end) { table.pack_weight_gradient(args, begin, end); });
  parallel(x_panels * ((out + 191) / 192),
           [&](std::int64_t begin, std::int64_t end) { table.multiply_weight_gradient(args, begin, end); });
  return result;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
    const at::Tensor weight = bf16_copy(weights);
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
    at::Tensor y = biases.empty() ? at::mm(rows, weight.t()) : at::addmm(bf16_copy(biases), rows, weight.t());
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
    note_backward();
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> outs = context->saved_data["outs"].toIntVector();
    const bool has_bias = context->saved_data["bias"].toBool();
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)}).contiguous();
    variable_list result(1 + outs.size() * (has_bias ? 2 : 1));
    if (context->needs_input_grad(0)) result[0] = at::mm(dy, saved[1]).view(context->saved_data["sizes"].toIntVector());
    bool wants_weights = false;
    for (std::size_t i = 1; i < result.size(); ++i) wants_weights = wants_weights || context->needs_input_grad(i);
    if (!wants_weights) return result;
    const LinearGradients sums = weight_gradients(dy, saved[0], has_bias);
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
  const auto is_fp32 = [](const at::Tensor& w) { return has_kernel(w) && w.scalar_type() == at::kFloat && w.is_leaf(); };
  return has_kernel(x) && x.scalar_type() == at::kBFloat16 && x.numel() > 0 && x.dim() > 0 &&
         std::ranges::all_of(weights, is_fp32) && std::ranges::all_of(biases, is_fp32);
}

}  // namespace

at::Tensor linear_packed(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  TORCH_CHECK(!weights.empty() && (biases.empty() || biases.size() == weights.size()), "linear_packed: ", weights.size(),
              " weights and ", biases.size(), " biases");
  if (fits(x, weights, biases)) return LinearFunction::apply(x, weights, biases);
  const auto side_by_side = [&](at::TensorList parts) {
    return (parts.size() == 1 ? parts[0] : at::cat(parts)).to(x.scalar_type());
  };
  return at::linear(x, side_by_side(weights), biases.empty() ? std::optional<at::Tensor>() : side_by_side(biases));
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return linear_packed(x, weight, bias.defined() ? at::TensorList(bias) : at::TensorList());
}

}  // namespace millrace::kernels
