// Gradient of a linear layer's weight from bf16 operands, summed in fp32: dW = dY^T X. ATen has no such product on the CPU; its
// own rounds the sum to bf16 and then costs a pass to widen it.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tile.inl"

namespace {

inline constexpr std::int64_t kTileRows = 6;
inline constexpr std::int64_t kTileColumns = 64;
inline constexpr std::int64_t kTilePanels = 32;  // row panels that share one column panel while it is in the cache

// Rows m and m + 1 of a bf16 matrix, 16 columns from c on, as words; past the end zero.
inline U row_pair(const std::uint16_t* x, std::int64_t rows, std::int64_t columns, std::int64_t m, std::int64_t c) {
  const std::uint16_t* low = x + m * columns + c;
  if (c + 16 <= columns && m + 1 < rows) return zip(low, low + columns);
  std::uint16_t padded[2][16] = {};
  const std::int64_t n = columns - c < 16 ? columns - c : 16;
  for (std::int64_t i = 0; i < n; ++i) {
    padded[0][i] = low[i];
    if (m + 1 < rows) padded[1][i] = low[columns + i];
  }
  return zip(padded[0], padded[1]);
}

// Panels first the 16-column panels of y (with their column sums), then the 64-column panels of x.
void pack_weight_gradient(const WeightGradient& a, std::int64_t first_panel, std::int64_t last_panel) {
  const std::int64_t pairs = (a.rows + 1) / 2;
  const std::int64_t y_panels = (a.out + 15) / 16;
  const std::int64_t y_stride = round_up(a.out, 48);
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    if (panel < y_panels) {
      const std::int64_t n = panel * 16;
      F total = splat(0.0F);
      for (std::int64_t p = 0; p < pairs; ++p) {
        const U words = row_pair(a.y_gradient, a.rows, a.out, 2 * p, n);
        store_words(a.packed_y + p * y_stride + n, words);
        total = add_pairs(total, words);
      }
      if (a.bias_gradient != nullptr) store_some(a.bias_gradient + n, total, a.out - n);
      continue;
    }
    const std::int64_t k = (panel - y_panels) * kTileColumns;
    std::uint32_t* out = a.packed_x + k * pairs;
    for (std::int64_t p = 0; p < pairs; ++p) {
      for (std::int64_t j = 0; j < kTileColumns && k + j < a.in; j += 16) {
        store_words(out + p * kTileColumns + j, row_pair(a.x, a.rows, a.in, 2 * p, k + j));
      }
    }
  }
}

// A tile of work is kTilePanels row panels of one column panel.
void multiply_weight_gradient(const WeightGradient& a, std::int64_t first_tile, std::int64_t last_tile) {
  const std::int64_t pairs = (a.rows + 1) / 2;
  const std::int64_t y_stride = round_up(a.out, 48);
  const std::int64_t groups = (a.out + kTileRows * kTilePanels - 1) / (kTileRows * kTilePanels);
  for (std::int64_t work = first_tile; work < last_tile; ++work) {
    const std::int64_t k = work / groups * kTileColumns;
    const std::int64_t begin = work % groups * kTileRows * kTilePanels;
    const std::int64_t end = begin + kTileRows * kTilePanels < a.out ? begin + kTileRows * kTilePanels : a.out;
    const std::int64_t columns = a.in - k < kTileColumns ? a.in - k : kTileColumns;
    with_vectors((columns + 15) / 16, [&](auto vectors) {
      constexpr int kVectors = decltype(vectors)::value;
      for (std::int64_t n = begin; n < end; n += kTileRows) {
        F c[kTileRows][kVectors];
        clear(c);
        tile<std::uint16_t, true>(pairs, a.packed_y + n, y_stride, a.packed_x + k * pairs, kTileColumns, c);
        for (std::int64_t i = 0; i < kTileRows && n + i < a.out; ++i) {
          for (int j = 0; j < kVectors; ++j) {
            store_some(a.weight_gradient + (n + i) * a.in + k + 16 * j, c[i][j], columns - 16 * j);
          }
        }
      }
    });
  }
}

}  // namespace
