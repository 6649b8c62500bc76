#include "millrace/nn/residual.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>
#include <vector>

#include "millrace/device/autocast.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/device_group_norm.h"
#include "millrace/kernels/few_voxels_conv3d.h"
#include "millrace/kernels/group_norm.h"
#include "millrace/kernels/upsampled_conv3d.h"

namespace millrace::nn {
namespace {

// The type to which the next convolution would cast its input.
at::ScalarType type_for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  const bool is_cast = at::autocast::is_autocast_enabled(device) && x.scalar_type() != at::kDouble;
  return is_cast ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const kernels::GroupNormOptions& options,
                const Fused& fused) {
  const at::ScalarType type = type_for_convolution(x);
  const device::NoAutocast fp32(x.device().type());
  if (!choose<kFusedGroupNorm>(fused)) return kernels::group_norm_plain(x, weight, bias, options).to(type);
  return kernels::group_norm(x, weight, bias, options).to(type);
}

constexpr std::array<std::int64_t, 3> kVolumeAxes{2, 3, 4};

// Computes zeros_behind(). LibTorch's padding would fill all of the padded volume with zeros before it copies x, and would add
// the bias in a separate pass.
struct ZerosBehindFunction : torch::autograd::Function<ZerosBehindFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& bias) {
    context->saved_data["bias"] = bias.has_value();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    for (const std::int64_t axis : kVolumeAxes) ++sizes[static_cast<std::size_t>(axis)];
    at::Tensor out = at::empty(sizes, x.options(), kernels::layout_of(x));
    for (const std::int64_t axis : kVolumeAxes) out.narrow(axis, x.size(axis), 1).zero_();
    at::Tensor inner = inside(out);
    if (bias) {
      at::add_out(inner, x, bias->to(x.scalar_type()).view({1, -1, 1, 1, 1}));
    } else {
      inner.copy_(x);
    }
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor inner = inside(gradients[0]).contiguous(kernels::layout_of(gradients[0]));
    const bool wants_bias = context->saved_data["bias"].toBool() && context->needs_input_grad(1);
    return {inner, wants_bias ? inner.sum({0, 2, 3, 4}, false, at::kFloat) : at::Tensor()};
  }

 private:
  static at::Tensor inside(const at::Tensor& padded) {
    at::Tensor inner = padded;
    for (const std::int64_t axis : kVolumeAxes) inner = inner.narrow(axis, 0, padded.size(axis) - 1);
    return inner;
  }
};

}  // namespace

at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                      bool silu, const Fused& fused) {
  return norm(x, weight, bias, {.groups = groups, .epsilon = eps, .silu = silu}, fused);
}

at::Tensor normed_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                         bool silu, const at::Tensor& conv_weight, const at::Tensor& conv_bias, const Fused& fused) {
  constexpr std::array<std::int64_t, 3> kOne{1, 1, 1};
  const kernels::GroupNormOptions options{.groups = groups, .epsilon = eps, .silu = silu};
  if (!choose<kFusedGroupNorm>(fused))
    return at::conv3d(norm(x, weight, bias, options, fused), conv_weight, conv_bias, kOne, kOne);
  const at::Tensor narrow = x.to(type_for_convolution(x));
  const device::NoAutocast as_it_is(x.device().type());
  return kernels::group_norm_conv3d(narrow, weight, bias, options, conv_weight, conv_bias, choose<kLeanNorms>(fused));
}

at::Tensor instance_norm_leaky(const at::Tensor& x, double eps, double slope, const Fused& fused) {
  return norm(x, {}, {}, {.groups = x.size(1), .epsilon = eps, .slope = slope}, fused);
}

at::Tensor upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused) {
  const at::Tensor narrow = x.to(type_for_convolution(x));
  const device::NoAutocast as_it_is(x.device().type());
  if (narrow.is_contiguous(at::MemoryFormat::ChannelsLast3d) && !narrow.is_contiguous()) count_taken<kChannelsLast>();
  if (!choose<kPhasedUpsampling>(fused, bias.defined() && kernels::transposes_upsampled(narrow)))
    return kernels::upsampled_conv3d_plain(narrow, weight, bias);
  return kernels::upsampled_conv3d(narrow, weight, bias);
}

at::Tensor conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                  std::int64_t padding, const Fused& fused) {
  const at::ScalarType type = type_for_convolution(x);
  // Without autocast, x must have the weight's type, because only the end of an autocast scope frees cast copies of weights. If
  // x has another type, ATen reports the error.
  const bool fits =
      type == weight.scalar_type() || (type == at::kBFloat16 && at::autocast::is_autocast_enabled(x.device().type()));
  if (!choose<kVoxelProducts>(fused, fits && kernels::has_few_voxels(x, weight, bias, stride, padding))) {
    const std::array<std::int64_t, 3> steps{stride, stride, stride}, around{padding, padding, padding};
    return at::conv3d(x, weight, bias, steps, around);
  }
  const at::Tensor as_x =
      (type == weight.scalar_type() ? weight : at::autocast::cached_cast(type, weight, x.device().type())).detach();
  const at::Tensor narrow = x.to(type);
  const device::NoAutocast as_it_is(x.device().type());
  return kernels::few_voxels_conv3d(narrow, weight, as_x, bias, stride, padding);
}

at::Tensor whole(const Biased& x) { return x.bias.defined() ? x.x + x.bias.to(x.x.scalar_type()).view({1, -1, 1, 1, 1}) : x.x; }

bool leaves_out_biases(const at::Tensor& x, const Fused& fused) {
  return fused.on(kFusedGroupNorm) && kernels::has_device_kernel(x);
}

Biased biased_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                     std::int64_t padding, const Fused& fused) {
  if (leaves_out_biases(x, fused)) return {conv3d(x, weight, {}, stride, padding, fused), bias};
  return {conv3d(x, weight, bias, stride, padding, fused), {}};
}

Biased biased_upsampled_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Fused& fused) {
  if (leaves_out_biases(x, fused)) return {upsampled_conv3d(x, weight, {}, fused), bias};
  return {upsampled_conv3d(x, weight, bias, fused), {}};
}

at::Tensor zeros_behind(const Biased& x, const Fused& fused) {
  constexpr std::array<std::int64_t, 6> kBehind{0, 1, 0, 1, 0, 1};
  if (!leaves_out_biases(x.x, fused)) return at::constant_pad_nd(whole(x), kBehind);
  return ZerosBehindFunction::apply(x.x, kernels::optional(x.bias));
}

Branched branched_group_norm(const Biased& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t groups, double eps,
                             bool silu, const Fused& fused) {
  if (!kernels::has_device_group_norm(x.x, weight, bias) || !choose<kFusedGroupNorm>(fused))
    return {group_norm(whole(x), weight, bias, groups, eps, silu, fused), x};
  const at::ScalarType type = type_for_convolution(x.x);
  const device::NoAutocast fp32(x.x.device().type());
  const kernels::DeviceNormed both =
      kernels::device_group_norm(x.x, x.bias, weight, bias, {.groups = groups, .epsilon = eps, .silu = silu});
  return {both.y.to(type), {both.x, x.bias}};
}

}  // namespace millrace::nn
