#include "millrace/nn/volume.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/full_like.h>

#include <array>
#include <vector>

#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/conv3d.h"
#include "millrace/kernels/operation_trial.h"
#include "millrace/kernels/smooth_leaky.h"
#include "millrace/nn/detail/operation_trials.h"

namespace millrace::nn {
namespace {

// Casts x as autocast would cast it before the convolution. The cast comes before the padding, which then copies half as many
// bytes.
at::Tensor for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() != at::kFloat) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
}

// True if kernels::direct_conv3d, which must support these tensors, is faster than LibTorch's convolution. A trial times the
// forward and backward pass of both.
bool convolution_takes_ours(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight) {
  const at::ScalarType type = x.scalar_type();
  if (!kernels::operation_trial_runs())
    return kernels::implementation_of(kernels::Operation::convolution, type) == kernels::Implementation::ours;
  const auto volume = [](const at::Tensor& like) {
    return at::full_like(like, 0.1).detach().requires_grad_(like.requires_grad());
  };
  const at::Tensor first = volume(x);
  const at::Tensor second = more.defined() ? volume(more) : more;
  detail::Tensors inputs{detail::leaf(weight.sizes(), at::kFloat), detail::leaf({weight.size(0)}, at::kFloat)};
  for (const at::Tensor& one : {first, second}) {
    if (one.defined() && one.requires_grad()) inputs.push_back(one);
  }
  std::vector<std::int64_t> shape = x.sizes().vec();
  for (const std::int64_t size : {more.defined() ? more.size(1) : 0, weight.size(0), first.requires_grad() ? 1L : 0L})
    shape.push_back(size);
  const double pixels = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  return kernels::takes_ours(
      {kernels::Operation::convolution, type, shape, pixels * static_cast<double>(weight.numel())},
      detail::forward_and_backward(inputs,
                                   [&] { return detail::Tensors{kernels::direct_conv3d(first, second, inputs[0], inputs[1])}; }),
      detail::forward_and_backward(
          inputs, [&] { return detail::Tensors{kernels::direct_conv3d_plain(first, second, inputs[0], inputs[1])}; }));
}

}  // namespace

at::Tensor smooth_leaky(const at::Tensor& x, const Fused& fused) {
  return choose<kFusedActivation>(fused) ? kernels::smooth_leaky(x) : kernels::smooth_leaky_plain(x);
}

at::Tensor circular_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                           std::int64_t stride, const Fused& fused) {
  const at::Tensor first = for_convolution(x);
  const at::Tensor second = more.defined() ? for_convolution(more) : more;
  const bool fits = stride == 1 && kernels::has_direct_conv3d(first, second, weight, bias);
  if (choose<kDirectConvolution>(fused, fits, [&] { return convolution_takes_ours(first, second, weight); })) {
    if (!first.is_contiguous()) count_taken<kChannelsLast>();
    return kernels::direct_conv3d(first, second, weight, bias);
  }
  const at::Tensor padded =
      choose<kFusedPadding>(fused) ? kernels::circular_pad(first, second) : kernels::circular_pad_plain(first, second);
  if (padded.is_contiguous(at::MemoryFormat::ChannelsLast3d) && !padded.is_contiguous()) count_taken<kChannelsLast>();
  const std::array<std::int64_t, 3> strides{stride, stride, stride};
  return at::conv3d(padded, weight, bias, strides);
}

}  // namespace millrace::nn
