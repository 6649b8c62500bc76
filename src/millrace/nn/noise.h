// Random numbers that belong to the rows of a batch, for Recipe::prepare and other code outside layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace millrace::nn {

// Determines a row's random numbers. The numbers depend only on these values, not on the batch in which the row is.
struct RowKey {
  std::uint64_t seed = 0;
  std::uint64_t site = 0;  // distinguishes several uses in a recipe
  std::uint64_t epoch = 0;
  std::span<const std::int64_t> positions;  // position of each row in the order of the epoch: Group::positions
};

// Rows with more numbers are drawn on their device, because the host would need more time for them than the device for a step.
inline constexpr std::int64_t kMostDrawnOnHost = std::int64_t{1} << 18;

// Standard normal numbers (rows, row_shape...) with `options`. If a row has up to kMostDrawnOnHost numbers, they are the same on
// every device. The numbers of larger rows differ between kinds of devices.
[[nodiscard]] at::Tensor normal_rows(const RowKey& key, at::IntArrayRef row_shape, const at::TensorOptions& options);

}  // namespace millrace::nn
