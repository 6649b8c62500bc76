#include "recipes/image_pairs/patches.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace::recipes::image_pairs {
namespace {

constexpr double kLeast = 0.05;  // the least amplitude, so that the mean of a patch, (u, v) = (0, 0), is not lost

// Row u of the result is the cosine with u half waves along a side. The rows are orthonormal.
at::Tensor cosines(std::int64_t side) {
  const at::Tensor along = at::arange(side, at::kDouble);
  const at::Tensor angles = (along + 0.5) * along.unsqueeze(1) * (std::numbers::pi / static_cast<double>(side));
  at::Tensor rows = angles.cos() * std::sqrt(2.0 / static_cast<double>(side));
  rows.select(0, 0).div_(std::numbers::sqrt2);
  return rows;
}

at::Tensor scales(std::int64_t side) {
  const at::Tensor along = at::arange(side, at::kDouble).square();
  const double highest = std::max(1.0, static_cast<double>(side - 1));
  return ((along + along.unsqueeze(1)).sqrt() / highest).clamp(kLeast, 1.0);
}

}  // namespace

void fill_whitened(at::Tensor& filters, at::Generator& generator) {
  const std::int64_t side = filters.size(3);
  const double fan_in = static_cast<double>(filters.numel()) / static_cast<double>(filters.size(0));
  at::Tensor shares = at::empty(filters.sizes(), at::kFloat);
  shares.normal_(0.0, 1.0 / std::sqrt(fan_in), generator);
  const at::Tensor waves = cosines(side);
  filters.copy_(at::matmul(waves.t(), at::matmul(shares.to(at::kDouble) * scales(side), waves)));
}

}  // namespace millrace::recipes::image_pairs
