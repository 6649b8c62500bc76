// Random numbers that belong to the rows of a batch, for Recipe::prepare and whatever else runs outside a layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace millrace::nn {

// Which numbers a row gets: a pure function of these, whatever batch the row is in.
struct RowKey {
  std::uint64_t seed = 0;
  std::uint64_t site = 0;  // tells the uses of a recipe apart
  std::uint64_t epoch = 0;
  std::span<const std::int64_t> positions;  // one a row: Group::positions
};

// A row of more numbers is drawn by its device: the host would take longer for it than the device for a step.
inline constexpr std::int64_t kMostDrawnOnHost = std::int64_t{1} << 18;

// Standard normal numbers, (rows, row_shape...), of `options`. Up to kMostDrawnOnHost numbers a row they are the same on every
// device; beyond, they differ between kinds of devices.
[[nodiscard]] at::Tensor normal_rows(const RowKey& key, at::IntArrayRef row_shape, const at::TensorOptions& options);

}  // namespace millrace::nn
