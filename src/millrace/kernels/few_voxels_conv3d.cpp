#include "millrace/kernels/few_voxels_conv3d.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/product.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::size_t kAxes = 3;

struct Shape {
  std::int64_t samples, channels, outputs, kernel, stride, padding;
  std::array<std::int64_t, kAxes> in{}, out{};

  Shape(const at::Tensor& x, const at::Tensor& weight, std::int64_t step, std::int64_t around)
      : samples(x.size(0)), channels(x.size(1)), outputs(weight.size(0)), kernel(weight.size(2)), stride(step), padding(around) {
    for (std::size_t axis = 0; axis < kAxes; ++axis) {
      in.at(axis) = x.size(static_cast<std::int64_t>(axis) + 2);
      out.at(axis) = in.at(axis) + 2 * padding < kernel ? 0 : (in.at(axis) + 2 * padding - kernel) / stride + 1;
    }
  }
  [[nodiscard]] std::int64_t voxels() const noexcept { return samples * out[0] * out[1] * out[2]; }
  [[nodiscard]] std::int64_t taps() const noexcept { return kernel * kernel * kernel; }
};

// The voxels under the kernel as rows (voxels of the result, C * K^3), in the order of a weight's rows.
at::Tensor rows_under_kernel(const at::Tensor& x, const Shape& shape) {
  const std::array<std::int64_t, 2 * kAxes> around{shape.padding, shape.padding, shape.padding,
                                                   shape.padding, shape.padding, shape.padding};
  const at::Tensor wide = shape.padding > 0 ? at::constant_pad_nd(x, around) : x;
  const at::Tensor windows = wide.unfold(2, shape.kernel, shape.stride)
                                 .unfold(3, shape.kernel, shape.stride)
                                 .unfold(4, shape.kernel, shape.stride);  // (N, C, D, H, W, K, K, K)
  // contiguous() is needed because with few samples and channels the rows can be overlapping views of the volume.
  return windows.permute({0, 2, 3, 4, 1, 5, 6, 7}).reshape({shape.voxels(), shape.channels * shape.taps()}).contiguous();
}

// Turns rows (voxels, O) into volumes (N, O, D, H, W).
at::Tensor volumes_of(const at::Tensor& rows, const Shape& shape) {
  return rows.view({shape.samples, shape.out[0], shape.out[1], shape.out[2], rows.size(1)}).permute({0, 4, 1, 2, 3});
}

// Adds the rows' elements, in fp32, to the voxels from which rows_under_kernel() copied them. Handles one tap of the kernel at a
// time.
at::Tensor added_up(const at::Tensor& rows, const Shape& shape, const at::Tensor& like) {
  const std::int64_t around = 2 * shape.padding;
  const at::Tensor wide =
      at::zeros({shape.samples, shape.in[0] + around, shape.in[1] + around, shape.in[2] + around, shape.channels},
                rows.options().dtype(at::kFloat));
  const at::Tensor taps =
      rows.view({shape.samples, shape.out[0], shape.out[1], shape.out[2], shape.channels, shape.taps()}).to(at::kFloat);
  const auto seen = [&](at::Tensor from, std::int64_t axis, std::int64_t tap) {
    const std::int64_t last = tap + (shape.out.at(static_cast<std::size_t>(axis) - 1) - 1) * shape.stride;
    return from.slice(axis, tap, last + 1, shape.stride);
  };
  for (std::int64_t tap = 0; tap < shape.taps(); ++tap) {
    const std::int64_t z = tap / (shape.kernel * shape.kernel), y = tap / shape.kernel % shape.kernel, x = tap % shape.kernel;
    seen(seen(seen(wide, 1, z), 2, y), 3, x).add_(taps.select(5, tap));
  }
  at::Tensor inner = wide;
  for (std::size_t axis = 0; axis < kAxes; ++axis)
    inner = inner.narrow(static_cast<std::int64_t>(axis) + 1, shape.padding, shape.in.at(axis));
  return inner.permute({0, 4, 1, 2, 3}).to(like.scalar_type()).contiguous(layout_of(like));
}

struct FewVoxelsConv3dFunction : torch::autograd::Function<FewVoxelsConv3dFunction> {
  // needs_input_grad() numbers only the tensors that are present: x, weight, as_x, bias.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& as_x,
                            std::int64_t stride, std::int64_t padding, const std::optional<at::Tensor>& bias) {
    const Shape shape(x, weight, stride, padding);
    context->save_for_backward({x, as_x});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["bias"] = bias.has_value();
    const at::Tensor start = bias ? bias->to(x.scalar_type()).contiguous() : at::Tensor();
    const at::Tensor rows = forward_product(rows_under_kernel(x, shape), as_x.flatten(1), start);
    return volumes_of(rows, shape).contiguous(layout_of(x));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a convolution");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const Shape shape(x, weight, context->saved_data["stride"].toInt(), context->saved_data["padding"].toInt());
    const at::Tensor dy = gradients[0].permute({0, 2, 3, 4, 1}).reshape({shape.voxels(), shape.outputs}).contiguous();
    constexpr std::size_t kBias = 5;
    variable_list result(kBias + 1);
    const bool wants_bias = context->saved_data["bias"].toBool() && context->needs_input_grad(3);
    if (context->needs_input_grad(1) || wants_bias) {
      WeightGradients sums = weight_gradients(dy, rows_under_kernel(x, shape), wants_bias);
      result[1] = sums.weight.view(weight.sizes());
      result[kBias] = std::move(sums.bias);
    }
    if (context->needs_input_grad(0)) result[0] = added_up(input_gradient(dy, weight.flatten(1)), shape, x);
    return result;
  }
};

}  // namespace

bool has_few_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                    std::int64_t padding) {
  const auto is_ours = [](const at::Tensor& numbers) { return has_kernel(numbers) && numbers.scalar_type() == at::kFloat; };
  if (x.dim() != 5 || weight.dim() != 5 || !has_kernel(x) || !is_ours(weight) || (bias.defined() && !is_ours(bias))) return false;
  if (!weight.is_contiguous() || weight.size(1) != x.size(1)) return false;
  if (weight.size(2) < 2 || weight.size(3) != weight.size(2) || weight.size(4) != weight.size(2)) return false;
  const Shape shape(x, weight, stride, padding);
  return x.numel() > 0 && shape.voxels() > 0 && shape.voxels() <= shape.outputs;
}

at::Tensor few_voxels_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& as_x, const at::Tensor& bias,
                             std::int64_t stride, std::int64_t padding) {
  MR_CHECK(has_few_voxels(x, weight, bias, stride, padding), "few_voxels_conv3d has no kernel for these tensors");
  MR_CHECK(
      as_x.sizes() == weight.sizes() && as_x.scalar_type() == x.scalar_type() && as_x.is_contiguous() && !as_x.requires_grad(),
      "few_voxels_conv3d takes as_x, a copy of the weight in the type of x, without a graph");
  const OperationSpan span("millrace::few_voxels_conv3d", x, weight);
  return FewVoxelsConv3dFunction::apply(x, weight, as_x, stride, padding, optional(bias));
}

}  // namespace millrace::kernels
