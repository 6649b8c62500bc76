#include "millrace/nn/stencil.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "millrace/base/error.h"
#include "millrace/device/autocast.h"

namespace millrace::nn {
namespace {

// Tests give fp64, which stays.
at::Tensor wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

at::Tensor gaussian_taps(const at::Tensor& sigma, std::int64_t size) {
  const at::Tensor distance = at::arange(size, sigma.options()) - static_cast<double>(size / 2);
  const at::Tensor taps = at::exp((distance / sigma).square() * -0.5);
  return taps / taps.sum();
}

at::Tensor blur_plain(const at::Tensor& x, const at::Tensor& taps) {
  const std::int64_t half = taps.size(0) / 2;
  const at::Tensor planes = x.reshape({-1, 1, x.size(-2), x.size(-1)});
  const at::Tensor down = at::conv2d(planes, taps.view({1, 1, -1, 1}), {}, {{1, 1}}, {{half, 0}});
  return at::conv2d(down, taps.view({1, 1, 1, -1}), {}, {{1, 1}}, {{0, half}}).view(x.sizes());
}

at::Tensor zoom_plain(const at::Tensor& x, const at::Tensor& scale, std::int64_t size) {
  constexpr std::int64_t kBilinear = 0, kZeros = 0;
  const at::Tensor line = at::linspace(-1, 1, size, scale.options());
  const at::Tensor across = (line * scale[0]).view({1, size}).expand({size, size});
  const at::Tensor down = (line * scale[1]).view({size, 1}).expand({size, size});
  const at::Tensor grid = at::stack({across, down}, -1).unsqueeze(0);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[sizes.size() - 1] = sizes[sizes.size() - 2] = size;
  return at::grid_sampler(x.reshape({1, -1, x.size(-2), x.size(-1)}), grid, kBilinear, kZeros, true).view(sizes);
}

at::Tensor rms_norm_silu_plain(const at::Tensor& x, double eps) {
  return at::silu(x * at::rsqrt(x.square().mean({1}, true) + eps));
}

at::Tensor soft_pool_plain(const at::Tensor& x, std::int64_t stride) {
  constexpr double kLargest = 30.0, kFloor = 1e-6;
  const at::Tensor line = at::tensor({1.0, 2.0, 1.0}, x.options());
  const at::Tensor planes = x.reshape({-1, 1, x.size(3), x.size(4)});
  const at::Tensor blurred = at::conv2d(planes, (at::outer(line, line) / 16.0).view({1, 1, 3, 3}), {}, {{1, 1}}, {{1, 1}});
  const at::Tensor weight = at::exp(blurred.clamp_max(kLargest));
  const auto mean = [&](const at::Tensor& values) { return at::avg_pool2d(values, {{2, 2}}, {{stride, stride}}); };
  const at::Tensor pooled = mean(blurred * weight) / (mean(weight) + kFloor);
  return pooled.view({x.size(0), x.size(1), x.size(2), pooled.size(2), pooled.size(3)});
}

}  // namespace

at::Tensor gaussian_blur(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size, const StencilPaths& /*paths*/) {
  MR_CHECK(size % 2 == 1, "gaussian_blur takes an odd number of taps");
  const device::NoAutocast fp32(x.device().type());
  return blur_plain(wide(x), gaussian_taps(wide(sigma), size));
}

at::Tensor zoom(const at::Tensor& x, const at::Tensor& scale, std::int64_t size, const StencilPaths& /*paths*/) {
  MR_CHECK(scale.dim() == 1 && scale.size(0) == 2, "zoom takes a scale for each axis");
  const device::NoAutocast fp32(x.device().type());
  return zoom_plain(wide(x), wide(scale), size);
}

at::Tensor temporal_filters(const at::Tensor& x, const at::Tensor& weight, const StencilPaths& /*paths*/) {
  const device::NoAutocast fp32(x.device().type());
  return at::conv3d(wide(x), wide(weight).view({weight.size(0), 1, weight.size(2), 1, 1}));
}

at::Tensor rms_norm_silu(const at::Tensor& x, double eps, const StencilPaths& /*paths*/) {
  const device::NoAutocast fp32(x.device().type());
  return rms_norm_silu_plain(wide(x), eps).to(x.scalar_type());
}

at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride, const StencilPaths& /*paths*/) {
  const device::NoAutocast fp32(x.device().type());
  return soft_pool_plain(wide(x), stride).to(x.scalar_type());
}

}  // namespace millrace::nn
