#include "millrace/nn/volume.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv3d.h>

#include <array>

#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/conv3d.h"
#include "millrace/kernels/smooth_leaky.h"
#include "millrace/nn/detail/ways.h"

namespace millrace::nn {
namespace {

// What autocast would cast before the convolution is cast before the padding: half the bytes to copy.
at::Tensor for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() != at::kFloat) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
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
  if (choose<kDirectConvolution>(fused, fits, [&] { return detail::convolution_goes_our_way(first, second, weight); })) {
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
