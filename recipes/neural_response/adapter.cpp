#include "recipes/neural_response/adapter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

#include "millrace/device/autocast.h"

namespace millrace::recipes::neural_response {
namespace {

double softplus_inverse(double value) { return std::log(std::expm1(value)); }

}  // namespace

Adapter::Adapter(const AdapterConfig& config, const nn::Fused& fused) : config_(config), fused_(fused) {
  log_sigma_ = register_parameter("log_sigma", at::scalar_tensor(softplus_inverse(config.init_sigma), at::kFloat));
  log_scale_ = register_parameter("log_scale", at::full({2}, softplus_inverse(config.init_scale), at::kFloat));
}

at::Tensor Adapter::forward(const at::Tensor& x) {
  const device::NoAutocast fp32(x.device().type());
  const at::Tensor scale = at::softplus(log_scale_);
  const at::Tensor least = at::relu(0.44 * (scale.min().reciprocal() - 1.0));  // 0 if the grid is not coarser than the stimulus
  const at::Tensor sigma = at::sqrt(least.square() + at::softplus(log_sigma_).square());
  const std::int64_t size = 2 * static_cast<std::int64_t>(std::ceil(3.0 * config_.sigma_max)) + 1;
  return nn::zoom(nn::gaussian_blur(x, sigma, size, fused_), scale, config_.grid_size, fused_);
}

}  // namespace millrace::recipes::neural_response
