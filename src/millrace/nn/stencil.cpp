#include "millrace/nn/stencil.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/device/autocast.h"
#include "millrace/kernels/rms_norm.h"
#include "millrace/kernels/soft_pool.h"
#include "millrace/kernels/widened.h"

namespace millrace::nn {
namespace {

using kernels::wide;

// Longest axis along which a stencil is applied as a small dense matrix. Such a product is many times faster than a convolution.
constexpr std::int64_t kLargestBand = 512;

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

// zoom() along one axis as a matrix (size, pixels). Row i interpolates between the two pixels next to point i of zoom's grid. The
// point u = line[i] * scale lies at (u + 1) / 2 * (pixels - 1), counted in pixels. The row of a point that lies outside by a
// pixel or more is zero.
at::Tensor interpolation(const at::Tensor& scale, std::int64_t size, std::int64_t pixels) {
  const at::Tensor line = at::linspace(-1, 1, size, scale.options());
  const at::Tensor place = (line * scale + 1.0) * (0.5 * static_cast<double>(pixels - 1));
  const at::Tensor left = place.detach().floor();
  const at::Tensor right_share = (place - left).unsqueeze(1);
  const at::Tensor apart = at::arange(pixels, scale.options()) - left.unsqueeze(1);
  return at::where(apart == 0.0, 1.0 - right_share, at::where(apart == 1.0, right_share, at::zeros({}, scale.options())));
}

// The convolution with `taps` along one axis as a matrix (pixels, pixels); row i computes output i.
at::Tensor band(const at::Tensor& taps, std::int64_t pixels) {
  const std::int64_t half = taps.size(0) / 2;
  const at::Tensor place = at::arange(pixels, taps.options().dtype(at::kLong));
  const at::Tensor tap = place.unsqueeze(0) - place.unsqueeze(1) + half;
  const at::Tensor inside = (tap >= 0).logical_and(tap < taps.size(0));
  return taps.index_select(0, tap.clamp(0, taps.size(0) - 1).view({-1})).view_as(tap) * inside.to(taps.scalar_type());
}

// down (h, H) x across^T (W, w) for every plane of x (..., H, W).
at::Tensor separable(const at::Tensor& x, const at::Tensor& down, const at::Tensor& across) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  const at::Tensor rows = at::matmul(x.reshape({-1, x.size(-1)}), across.t());
  const at::Tensor planes = rows.view({-1, x.size(-2), across.size(0)});
  const at::Tensor out = at::bmm(down.expand({planes.size(0), -1, -1}), planes);
  sizes[sizes.size() - 2] = down.size(0);
  sizes[sizes.size() - 1] = across.size(0);
  return out.view(sizes);
}

}  // namespace

at::Tensor gaussian_blur(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size, const Fused& fused) {
  MR_CHECK(size % 2 == 1, "gaussian_blur takes an odd number of taps");
  const device::NoAutocast fp32(x.device().type());
  const at::Tensor taps = gaussian_taps(wide(sigma), size);
  if (!choose<kStencils>(fused, std::max(x.size(-1), x.size(-2)) <= kLargestBand)) return blur_plain(wide(x), taps);
  const at::Tensor down = band(taps, x.size(-2));
  return separable(wide(x), down, x.size(-1) == x.size(-2) ? down : band(taps, x.size(-1)));
}

at::Tensor zoom(const at::Tensor& x, const at::Tensor& scale, std::int64_t size, const Fused& fused) {
  MR_CHECK(scale.dim() == 1 && scale.size(0) == 2, "zoom takes a scale for each axis");
  const device::NoAutocast fp32(x.device().type());
  const at::Tensor scales = wide(scale);
  if (!choose<kStencils>(fused, std::max(x.size(-1), x.size(-2)) <= kLargestBand)) return zoom_plain(wide(x), scales, size);
  return separable(wide(x), interpolation(scales[1], size, x.size(-2)), interpolation(scales[0], size, x.size(-1)));
}

at::Tensor temporal_filters(const at::Tensor& x, const at::Tensor& weight, const Fused& fused) {
  const device::NoAutocast fp32(x.device().type());
  const std::int64_t channels = weight.size(0), taps = weight.size(2), frames = x.size(2);
  MR_CHECK(x.size(1) == 1 && weight.size(1) == 1 && frames >= taps,
           "temporal_filters takes one channel and at least as many frames as taps");
  if (!choose<kStencils>(fused, frames <= kLargestBand)) return at::conv3d(wide(x), wide(weight).view({channels, 1, taps, 1, 1}));
  // A matrix (C out, T), whose row (c, t) holds filter c, shifted so that it starts at t.
  const std::int64_t out = frames - taps + 1;
  const at::Tensor rows = at::constant_pad_nd(wide(weight).view({channels, 1, taps}).expand({channels, out, taps}), {0, out});
  const at::Tensor shifted = rows.flatten(1).narrow(1, 0, out * frames).reshape({channels * out, frames});
  const at::Tensor pixels = wide(x).reshape({x.size(0), frames, x.size(3) * x.size(4)});
  const at::Tensor filtered = at::bmm(shifted.expand({x.size(0), -1, -1}), pixels);
  return filtered.view({x.size(0), channels, out, x.size(3), x.size(4)});
}

at::Tensor rms_norm_silu(const at::Tensor& x, double eps, const Fused& fused) {
  const device::NoAutocast fp32(x.device().type());
  return choose<kFusedRmsNorm>(fused) ? kernels::rms_norm_silu(x, eps) : kernels::rms_norm_silu_plain(x, eps);
}

at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride, const Fused& fused) {
  const device::NoAutocast fp32(x.device().type());
  return choose<kFusedPooling>(fused) ? kernels::blurred_soft_pool(x, stride) : kernels::blurred_soft_pool_plain(x, stride);
}

}  // namespace millrace::nn
