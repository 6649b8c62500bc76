#include "millrace/nn/residual.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv3d.h>

#include <array>

#include "millrace/device/autocast.h"
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
  if (!choose<kPhasedUpsampling>(fused, kernels::transposes_upsampled(narrow)))
    return kernels::upsampled_conv3d_plain(narrow, weight, bias);
  return kernels::upsampled_conv3d(narrow, weight, bias);
}

at::Tensor conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, std::int64_t stride,
                  std::int64_t padding, const Fused& fused) {
  const at::ScalarType type = type_for_convolution(x);
  // Without autocast x must have the weight's type, and ATen reports the error otherwise: no scope would free the cast copies of
  // the weights.
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

}  // namespace millrace::nn
