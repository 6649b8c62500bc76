// The intensity scaling of a crop.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::recipes::autoencoder_3d {

inline constexpr double kUpperPercentile = 99.5;

// A percentile of sorted values: value[below] + weight * (value[below + 1] - value[below]).
struct Quantile {
  std::int64_t below = 0;
  double weight = 0;  // in [0, 1)
};
// The place of percentile 99.5 among `count` values.
[[nodiscard]] constexpr Quantile upper_place(std::int64_t count) {
  const double place = kUpperPercentile / 100 * static_cast<double>(count - 1);
  const auto below = static_cast<std::int64_t>(place);
  return {below, place - static_cast<double>(below)};
}

// Percentiles 0 and 99.5 of each row and channel of x (B, C, D, H, W) fp32: (B, C, 2), interpolated linearly between order
// statistics as in numpy.percentile. Never reads back to the host.
[[nodiscard]] at::Tensor range_of(const at::Tensor& x);

struct Scaled {
  at::Tensor x;     // in [0, 1]
  at::Tensor flat;  // (B, C) booleans: the two percentiles are equal, so that all values became 0
};
// (x - a) / (b - a), clamped to [0, 1]; `range` (B, C, 2) as returned by range_of().
[[nodiscard]] Scaled scale_to_unit(const at::Tensor& x, const at::Tensor& range);

}  // namespace millrace::recipes::autoencoder_3d
