// Scales the intensities of a crop between its percentiles.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::recipes::autoencoder_3d {

inline constexpr double kUpperPercentile = 99.5;

// The position of a percentile among sorted values: the percentile is value[below] + weight * (value[below + 1] - value[below]).
struct Quantile {
  std::int64_t below = 0;
  double weight = 0;  // in [0, 1)
};
// The position of percentile 99.5 among `count` values.
[[nodiscard]] constexpr Quantile upper_place(std::int64_t count) {
  const double place = kUpperPercentile / 100 * static_cast<double>(count - 1);
  const auto below = static_cast<std::int64_t>(place);
  return {below, place - static_cast<double>(below)};
}

// Percentiles 0 and 99.5 of each row and channel of x (B, C, D, H, W) fp32, as (B, C, 2). Interpolated linearly, as
// numpy.percentile does. No value is copied to the host.
[[nodiscard]] at::Tensor range_of(const at::Tensor& x);

struct Scaled {
  at::Tensor x;     // in [0, 1]
  at::Tensor flat;  // (B, C) booleans: true where both percentiles are equal; all values of such a channel became 0
};
// (x - a) / (b - a), clamped to [0, 1], where a and b are the percentiles in `range` (B, C, 2), a result of range_of().
[[nodiscard]] Scaled scale_to_unit(const at::Tensor& x, const at::Tensor& range);

}  // namespace millrace::recipes::autoencoder_3d
