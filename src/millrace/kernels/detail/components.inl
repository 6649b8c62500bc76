// Removes components from planes of pixels. A tile of 64 pixels is handled at a time, so that it stays in the first cache between
// its three passes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/kernels/detail/tile.inl"

namespace {

constexpr int kTileLanes = 4;  // vectors of 16 pixels in a tile
constexpr int kTile = 16 * kTileLanes;
static_assert(kTileLanes % kTileVectors == 0);
constexpr int kBlock = 4;  // components or frequencies that are handled together

std::size_t components_scratch(const Components& c) {
  return static_cast<std::size_t>(c.frequencies + c.count) * kTile * sizeof(float);
}

// strengths[k] = sum over f of vectors[f, k] d[f].
inline void project(const Components& c, const float* d, float* strengths) {
  for (std::int64_t k = 0; k < c.count; k += kBlock) {
    for (int first = 0; first < kTile; first += kTileColumns) {
      F total[kBlock][kTileVectors];
      clear(total);
      for (std::int64_t f = 0; f < c.frequencies; ++f) {
        const float* weights = c.vectors + f * c.count + k;
        for (int v = 0; v < kTileVectors; ++v) {
          const F value = load(d + f * kTile + first + 16 * v);
          for (int j = 0; j < kBlock; ++j) total[j][v] = fma(splat(weights[j]), value, total[j][v]);
        }
      }
      for (int j = 0; j < kBlock; ++j) {
        for (int v = 0; v < kTileVectors; ++v) store(strengths + (k + j) * kTile + first + 16 * v, total[j][v]);
      }
    }
  }
}

// out = d - vectors strengths, for `rows` frequencies from f on and the tile's first `width` pixels.
template <int rows>
inline void subtract(const Components& c, const float* d, const float* strengths, std::int64_t f, float* out, int width) {
  for (int first = 0; first < width; first += kTileColumns) {
    F left[rows][kTileVectors];
    for (int i = 0; i < rows; ++i) {
      for (int v = 0; v < kTileVectors; ++v) left[i][v] = load(d + (f + i) * kTile + first + 16 * v);
    }
    for (std::int64_t k = 0; k < c.count; ++k) {
      for (int v = 0; v < kTileVectors; ++v) {
        const F strength = load(strengths + k * kTile + first + 16 * v);
        for (int i = 0; i < rows; ++i) left[i][v] = fnma(splat(c.vectors[(f + i) * c.count + k]), strength, left[i][v]);
      }
    }
    for (int i = 0; i < rows; ++i) {
      float* to = out + (f + i) * c.pixels + first;
      for (int v = 0; v < kTileVectors && first + 16 * v < width; ++v)
        store_some(to + 16 * v, left[i][v], width - first - 16 * v);
    }
  }
}

void remove_components(const Components& c, std::int64_t first_tile, std::int64_t last_tile, void* scratch) {
  auto* d = static_cast<float*>(scratch);
  float* strengths = d + c.frequencies * kTile;
  const std::int64_t tiles = (c.pixels + kTile - 1) / kTile;
  for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
    const std::int64_t pixel = tile % tiles * kTile;
    const std::int64_t at = tile / tiles * c.frequencies * c.pixels + pixel;
    const int width = c.pixels - pixel < kTile ? static_cast<int>(c.pixels - pixel) : kTile;
    for (std::int64_t f = 0; f < c.frequencies; ++f) {
      const float* from = c.x + at + f * c.pixels;
      const F mean = splat(c.mean[f]);
      for (int v = 0; v < kTileLanes; ++v) {
        const int lanes = width - 16 * v;
        const F value = lanes >= 16 ? load(from + 16 * v) : load_first(from + 16 * v, lanes < 0 ? 0 : lanes);
        store(d + f * kTile + 16 * v, sub(value, mean));
      }
    }
    project(c, d, strengths);
    std::int64_t f = 0;
    for (; f + kBlock <= c.frequencies; f += kBlock) subtract<kBlock>(c, d, strengths, f, c.out + at, width);
    for (; f < c.frequencies; ++f) subtract<1>(c, d, strengths, f, c.out + at, width);
  }
}

}  // namespace
