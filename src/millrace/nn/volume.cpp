#include "millrace/nn/volume.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv3d.h>

#include <array>

#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/conv3d.h"
#include "millrace/kernels/smooth_leaky.h"
#include "millrace/nn/detail/ways.h"
#include "millrace/telemetry/spans.h"

namespace millrace::nn {
namespace {

// How often a switch's path was taken, by the row's name.
struct Taken {
  telemetry::Counter activation{"fused_activation"}, padding{"fused_padding"}, channels_last{"channels_last"},
      direct{"direct_convolution"};
};

const Taken& taken() {
  static const Taken all;
  return all;
}

// What autocast would cast before the convolution is cast before the padding: half the bytes to copy.
at::Tensor for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() != at::kFloat) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
}

}  // namespace

at::Tensor smooth_leaky(const at::Tensor& x, const VolumePaths& paths) {
  if (!paths.fused_activation) return kernels::smooth_leaky_plain(x);
  taken().activation.add(1);
  return kernels::smooth_leaky(x);
}

at::Tensor circular_conv3d(const at::Tensor& x, const at::Tensor& more, const at::Tensor& weight, const at::Tensor& bias,
                           std::int64_t stride, const VolumePaths& paths) {
  const at::Tensor first = for_convolution(x);
  const at::Tensor second = more.defined() ? for_convolution(more) : more;
  if (stride == 1 && paths.direct_convolution && kernels::has_direct_conv3d(first, second, weight, bias) &&
      detail::convolution_goes_our_way(first, second, weight)) {
    taken().direct.add(1);
    if (!first.is_contiguous()) taken().channels_last.add(1);
    return kernels::direct_conv3d(first, second, weight, bias);
  }
  if (paths.fused_padding) taken().padding.add(1);
  const at::Tensor padded =
      paths.fused_padding ? kernels::circular_pad(first, second) : kernels::circular_pad_plain(first, second);
  if (padded.is_contiguous(at::MemoryFormat::ChannelsLast3d) && !padded.is_contiguous()) taken().channels_last.add(1);
  const std::array<std::int64_t, 3> strides{stride, stride, stride};
  return at::conv3d(padded, weight, bias, strides);
}

}  // namespace millrace::nn
