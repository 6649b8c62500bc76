#include "millrace/nn/stencil.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <array>

namespace millrace::nn {
namespace {

using Two = std::array<std::int64_t, 2>;
constexpr Two kOne{1, 1};

// These compute in fp32 whatever autocast says.
class Fp32 {
 public:
  explicit Fp32(const at::Tensor& x) : device_(x.device().type()), was_(at::autocast::is_autocast_enabled(device_)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~Fp32() { at::autocast::set_autocast_enabled(device_, was_); }
  Fp32(const Fp32&) = delete;
  Fp32& operator=(const Fp32&) = delete;

 private:
  at::DeviceType device_;
  bool was_;
};

// All but the last two axes as samples of one channel.
at::Tensor frames(const at::Tensor& x) { return x.to(at::kFloat).reshape({-1, 1, x.size(-2), x.size(-1)}); }

at::Tensor gaussian_blur_plain(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size) {
  const at::Tensor d = at::arange(size, sigma.options()) - static_cast<double>(size / 2);
  const at::Tensor weights = ((d / sigma).square() * -0.5).exp();
  const at::Tensor taps = weights / weights.sum();
  const at::Tensor down = at::conv2d(frames(x), taps.view({1, 1, size, 1}), {}, kOne, Two{size / 2, 0});
  return at::conv2d(down, taps.view({1, 1, 1, size}), {}, kOne, Two{0, size / 2}).view(x.sizes()).to(x.scalar_type());
}

at::Tensor zoom_plain(const at::Tensor& x, const at::Tensor& scale, std::int64_t size) {
  const at::Tensor both = scale.expand({2});
  const at::Tensor line = at::linspace(-1, 1, size, scale.options());
  const at::Tensor across = (line * both[0]).view({1, size}).expand({size, size});
  const at::Tensor down = (line * both[1]).view({size, 1}).expand({size, size});
  const at::Tensor all = x.to(at::kFloat).reshape({1, -1, x.size(-2), x.size(-1)});
  constexpr std::int64_t kBilinear = 0;
  constexpr std::int64_t kZeros = 0;
  const at::Tensor sampled = at::grid_sampler(all, at::stack({across, down}, -1).unsqueeze(0), kBilinear, kZeros, true);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[sizes.size() - 2] = sizes[sizes.size() - 1] = size;
  return sampled.view(sizes).to(x.scalar_type());
}

at::Tensor blurred_soft_pool_plain(const at::Tensor& x, std::int64_t stride) {
  const at::Tensor line = at::tensor({1.0F, 2.0F, 1.0F}, x.options().dtype(at::kFloat));
  const at::Tensor blur = (at::outer(line, line) / 16.0).view({1, 1, 3, 3});
  const at::Tensor y = at::conv2d(frames(x), blur, {}, kOne, kOne);
  const at::Tensor weights = y.clamp_max(30.0).exp();
  const auto mean = [&](const at::Tensor& values) { return at::avg_pool2d(values, Two{2, 2}, Two{stride, stride}); };
  const at::Tensor pooled = mean(y * weights) / (mean(weights) + 1e-6);
  return pooled.view({x.size(0), x.size(1), x.size(2), pooled.size(2), pooled.size(3)}).to(x.scalar_type());
}

}  // namespace

at::Tensor gaussian_blur(const at::Tensor& x, const at::Tensor& sigma, std::int64_t size, const StencilPaths&) {
  const Fp32 fp32(x);
  return gaussian_blur_plain(x, sigma, size);
}

at::Tensor zoom(const at::Tensor& x, const at::Tensor& scale, std::int64_t size, const StencilPaths&) {
  const Fp32 fp32(x);
  return zoom_plain(x, scale, size);
}

at::Tensor temporal_filters(const at::Tensor& x, const at::Tensor& weight, const StencilPaths&) {
  const Fp32 fp32(x);
  return at::conv3d(x.to(at::kFloat), weight.view({weight.size(0), 1, weight.size(2), 1, 1})).to(x.scalar_type());
}

at::Tensor rms_norm_silu(const at::Tensor& x, double eps, const StencilPaths&) {
  const Fp32 fp32(x);
  const at::Tensor wide = x.to(at::kFloat);
  return at::silu(wide * (wide.square().mean({1}, true) + eps).rsqrt()).to(x.scalar_type());
}

at::Tensor blurred_soft_pool(const at::Tensor& x, std::int64_t stride, const StencilPaths&) {
  const Fp32 fp32(x);
  return blurred_soft_pool_plain(x, stride);
}

}  // namespace millrace::nn
