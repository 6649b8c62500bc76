// A convolution with kernel 3 and stride 1 over channels-last volumes with circular padding. A work item is a band: some output
// rows of one plane. The band's input rows are copied next to each other, with their ends wrapped and the channels of both inputs
// joined. The three pixels under a kernel's row are then one run of words, and every product is a tile of tile.inl.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tile.inl"

namespace {

inline constexpr int kConvTile = kTileRows * kTileVectors;  // number of sums that the registers hold
template <int NV>
inline constexpr int kConvRows = kConvTile / NV;
// CPUs with many registers need the fewest loads with three vectors by eight sums.
inline constexpr bool kManySums = kConvTile >= 24;
inline constexpr std::int64_t kWideColumns = kManySums ? 48 : 16;
template <class Run>
inline void with_wide_vectors(std::int64_t columns, Run run) {
  if constexpr (kManySums) {
    if (columns > 32) return run(Int<3>{});
    if (columns > 16) return run(Int<2>{});
  }
  run(Int<1>{});
}

inline std::int64_t wrapped_once(std::int64_t i, std::int64_t size) { return i < 0 ? i + size : i >= size ? i - size : i; }

// A band and its copied rows. Row (plane, line) is one of 3 * (band + 2), each `step` words long.
struct Band {
  std::int64_t sample, depth, first, rows;  // rows of the output
  std::int64_t pixel, step;                 // words of a pixel, and of a row
  std::uint32_t* words;
  [[nodiscard]] inline const std::uint32_t* row(std::int64_t plane, std::int64_t line) const {
    return words + (plane * (rows + 2) + line) * step;
  }
};

inline Band band_of(const Conv3d& a, std::int64_t item, std::int64_t pixel, std::uint32_t* words) {
  const std::int64_t bands = (a.height + a.band - 1) / a.band;
  const std::int64_t plane = item / bands;
  const std::int64_t first = item % bands * a.band;
  const std::int64_t rows = a.height - first < a.band ? a.height - first : a.band;
  return {plane / a.depth, plane % a.depth, first, rows, pixel, (a.width + 2 + kConvSlack) * pixel, words};
}

inline std::int64_t row_of(const Conv3d& a, const Band& band, std::int64_t plane, std::int64_t line) {
  return (band.sample * a.depth + wrapped_once(band.depth + plane - 1, a.depth)) * a.height +
         wrapped_once(band.first + line - 1, a.height);
}

// Copies one input's channels into a row whose pixels are `pixel` elements of T apart.
template <class T>
inline void copy_row(const T* from, std::int64_t channels, std::int64_t width, T* to, std::int64_t pixel) {
  const std::int64_t bytes = channels * static_cast<std::int64_t>(sizeof(T));
  copy_bytes(to, from + (width - 1) * channels, bytes);
  if (channels == pixel) {
    copy_bytes(to + pixel, from, width * bytes);
  } else {
    for (std::int64_t w = 0; w < width; ++w) copy_bytes(to + (w + 1) * pixel, from + w * channels, bytes);
  }
  copy_bytes(to + (width + 1) * pixel, from, bytes);
}

// Writes a row with all channels. Each pixel has `pixel` elements: its channels, followed by zeros.
template <class T>
inline void join_row(const Conv3d& a, std::int64_t row, T* to, std::int64_t pixel) {
  const std::int64_t all = a.channels + a.more_channels;
  if (pixel > all) {
    for (std::int64_t w = 0; w < a.width + 2; ++w)
      clear_bytes(to + w * pixel + all, (pixel - all) * static_cast<std::int64_t>(sizeof(T)));
  }
  copy_row(static_cast<const T*>(a.x) + row * a.width * a.channels, a.channels, a.width, to, pixel);
  if (a.more_channels > 0) {
    copy_row(static_cast<const T*>(a.more) + row * a.width * a.more_channels, a.more_channels, a.width, to + a.channels, pixel);
  }
}

template <class T>
inline void fill_band(const Conv3d& a, const Band& band) {
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    for (std::int64_t line = 0; line < band.rows + 2; ++line) {
      auto* to = reinterpret_cast<T*>(const_cast<std::uint32_t*>(band.row(plane, line)));
      join_row(a, row_of(a, band, plane, line), to, band.pixel * kPerWord<T>);
    }
  }
}

template <class T, int NV>
void convolve_band(const Conv3d& a, const Band& band, std::int64_t column) {
  constexpr int kRows = kConvRows<NV>;
  const std::int64_t words = 3 * band.pixel;
  const std::int64_t width = round_up(a.out_channels, 16);
  for (std::int64_t h = 0; h < band.rows; ++h) {
    const std::int64_t row = (band.sample * a.depth + band.depth) * a.height + band.first + h;
    T* out = static_cast<T*>(a.out) + row * a.width * a.out_channels + column;
    for (std::int64_t w = 0; w < a.width; w += kRows) {
      F c[kRows][NV];
      for (int j = 0; j < NV; ++j) {
        const F start = a.bias == nullptr ? splat(0.0F) : load(a.bias + column + 16 * j);
#pragma GCC unroll 24
        for (int i = 0; i < kRows; ++i) c[i][j] = start;
      }
      for (std::int64_t k = 0; k < 9; ++k) {
        tile<T, false>(words, band.row(k / 3, h + k % 3) + w * band.pixel, band.pixel, a.panels + k * words * width + column,
                       width, c);
      }
      const std::int64_t count = a.width - w < kRows ? a.width - w : kRows;
#pragma GCC unroll 24
      for (int i = 0; i < kRows; ++i) {
        if (i >= count) break;
        for (int j = 0; j < NV; ++j) {
          store_some(out + (w + i) * a.out_channels + 16 * j, c[i][j], a.out_channels - column - 16 * j);
        }
      }
    }
  }
}

// A band for few outputs. Lanes are pixels here, so that a loaded word serves several outputs. Rows are copied channel by
// channel: (channels, `line` words).
struct NarrowBand {
  Band band;
  std::int64_t channels, line;  // words of a pixel; words from one channel's row to the next channel's
};

template <class T>
inline void fill_narrow(const Conv3d& a, const NarrowBand& b, std::uint32_t* row) {
  for (std::int64_t i = 0; i < 3 * (b.band.rows + 2); ++i) {
    join_row(a, row_of(a, b.band, i / (b.band.rows + 2), i % (b.band.rows + 2)), reinterpret_cast<T*>(row),
             b.channels * kPerWord<T>);
    std::uint32_t* to = b.band.words + i * b.band.step;
    for (std::int64_t w = 0; w < a.width + 2; w += 16) {
      for (std::int64_t c = 0; c < b.channels; c += 16)
        transpose(row + w * b.channels + c, b.channels, to + c * b.line + w, b.line);
    }
  }
}

template <class T, int NV>
inline void convolve_narrow(const Conv3d& a, const NarrowBand& b, std::int64_t h, std::int64_t w, float* turned) {
  constexpr int kRows = 8;
  for (int o = 0; o < a.out_channels; o += kRows) {
    F c[kRows][NV];
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i) {
      const F start = splat(a.bias == nullptr ? 0.0F : a.bias[o + i]);
      for (int j = 0; j < NV; ++j) c[i][j] = start;
    }
    for (std::int64_t k = 0; k < 27; ++k) {
      tile<T, true>(b.channels, a.panels + k * b.channels * 16 + o, 16, b.band.row(k / 9, h + k / 3 % 3) + w + k % 3, b.line, c);
    }
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < NV; ++j) store(turned + (o + i) * 48 + 16 * j, c[i][j]);
    }
  }
}

template <class T>
void store_turned(const float* turned, std::int64_t pixels, std::int64_t channels, T* out) {
  float block[256];
  for (std::int64_t w = 0; w < pixels; w += 16) {
    transpose(reinterpret_cast<const std::uint32_t*>(turned + w), 48, reinterpret_cast<std::uint32_t*>(block), 16);
    const std::int64_t count = pixels - w < 16 ? pixels - w : 16;
    for (std::int64_t i = 0; i < count; ++i) store_some(out + (w + i) * channels, load(block + 16 * i), channels);
  }
}

template <class T>
void conv3d_narrow_of(const Conv3d& a, std::int64_t first_item, std::int64_t last_item, void* scratch) {
  const std::int64_t pixel = (a.channels + a.more_channels + kPerWord<T> - 1) / kPerWord<T>;
  const std::int64_t line = round_up(a.width + 2, 16) + 48;
  auto* row = static_cast<std::uint32_t*>(scratch);
  float turned[16 * 48];
  for (std::int64_t i = 0; i < 16 * 48; ++i) turned[i] = 0.0F;
  for (std::int64_t item = first_item; item < last_item; ++item) {
    NarrowBand b{band_of(a, item, pixel, row + (a.width + 34) * pixel + 16), pixel, line};
    b.band.step = round_up(pixel, 16) * line;
    fill_narrow<T>(a, b, row);
    for (std::int64_t h = 0; h < b.band.rows; ++h) {
      const std::int64_t at = ((b.band.sample * a.depth + b.band.depth) * a.height + b.band.first + h) * a.width;
      for (std::int64_t w = 0; w < a.width; w += 48) {
        const std::int64_t left = a.width - w < 48 ? a.width - w : 48;
        with_wide_vectors(left, [&](auto n) { convolve_narrow<T, decltype(n)::value>(a, b, h, w, turned); });
        store_turned(turned, left, a.out_channels, static_cast<T*>(a.out) + (at + w) * a.out_channels);
      }
    }
  }
}

template <class T>
void conv3d_forward_of(const Conv3d& a, std::int64_t first_item, std::int64_t last_item, void* scratch) {
  const std::int64_t pixel = (a.channels + a.more_channels + kPerWord<T> - 1) / kPerWord<T>;
  for (std::int64_t item = first_item; item < last_item; ++item) {
    const Band band = band_of(a, item, pixel, static_cast<std::uint32_t*>(scratch));
    fill_band<T>(a, band);
    for (std::int64_t column = 0; column < a.out_channels; column += kTileColumns) {
      with_vectors(a.out_channels - column, [&](auto n) { convolve_band<T, decltype(n)::value>(a, band, column); });
    }
  }
}

void conv3d_forward(const Conv3d& a, std::int64_t first_item, std::int64_t last_item, void* scratch) {
  if constexpr (kManySums) {
    if (a.out_channels <= 16 && a.channels + a.more_channels >= 8) {
      if (a.type == Type::bf16) return conv3d_narrow_of<std::uint16_t>(a, first_item, last_item, scratch);
      return conv3d_narrow_of<float>(a, first_item, last_item, scratch);
    }
  }
  if (a.type == Type::bf16) return conv3d_forward_of<std::uint16_t>(a, first_item, last_item, scratch);
  conv3d_forward_of<float>(a, first_item, last_item, scratch);
}

// ---- Gradients of the weights: sums over pixels ----

// Turns a row into words for a sum over pixels. fp32 pixels stay unchanged; a bf16 pixel p is paired with pixel p + 1, for each
// of the `step` channels.
inline void pair_pixels(const std::uint16_t* from, std::int64_t pixels, std::int64_t step, std::uint32_t* to) {
  const std::int64_t count = pixels * step;
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) store_words(to + i, zip(from + i, from + i + step));
  for (; i < count; ++i) to[i] = std::uint32_t{from[i]} | (std::uint32_t{from[i + step]} << 16U);
}

// Sums tiles over the band's pixels: outputs by NV vectors of a kernel row's (place, channel).
template <class T, int NV>
void weights_of_band(const Conv3d& a, const Band& band, const std::uint32_t* gradient, std::int64_t gradient_row, std::int64_t at,
                     std::int64_t first, float* sums) {
  constexpr int kRows = kConvRows<NV>;
  const std::int64_t width = round_up(a.out_channels, 16);
  const std::int64_t row = round_up(3 * band.pixel, 16);
  const std::int64_t words = (a.width + kPerWord<T> - 1) / kPerWord<T>;
  for (std::int64_t o = 0; o < width; o += kRows) {
    F c[kRows][NV];
    clear(c);
    for (std::int64_t h = 0; h < band.rows; ++h) {
      const std::uint32_t* x = band.row(at / 3, h + at % 3) + first;
      tile<T, true>(words, gradient + h * gradient_row + o, width, x, band.pixel * kPerWord<T>, c);
    }
#pragma GCC unroll 24
    for (int i = 0; i < kRows; ++i) {
      if (o + i >= width) break;
      for (int j = 0; j < NV; ++j) {
        float* sum = sums + (at * width + o + i) * row + first + 16 * j;
        store(sum, add(load(sum), c[i][j]));
      }
    }
  }
}

// The band's rows of the gradient as words, padded to vectors of outputs. Adds their column sums to `bias`.
template <class T>
void gradient_words(const Conv3d& a, const Band& band, std::uint32_t* words, std::int64_t row_words, float* bias) {
  const std::int64_t width = round_up(a.out_channels, 16);
  const std::int64_t first = ((band.sample * a.depth + band.depth) * a.height + band.first) * a.width;
  for (std::int64_t h = 0; h < band.rows; ++h) {
    const T* from = static_cast<const T*>(a.out_gradient) + (first + h * a.width) * a.out_channels;
    for (std::int64_t j = 0; j < width; j += 16) {
      F total = splat(0.0F);
      const std::int64_t left = a.out_channels - j;
      for (std::int64_t w = 0; w < a.width; w += kPerWord<T>) {
        std::uint32_t* to = words + h * row_words + w / kPerWord<T> * width + j;
        const T* pixel = from + w * a.out_channels + j;
        if constexpr (sizeof(T) == 4) {
          const F x = load_some(pixel, left);
          store(reinterpret_cast<float*>(to), x);
          total = add(total, x);
        } else {
          std::uint16_t pair[2][16] = {};
          const bool both = w + 1 < a.width;
          if (left < 16 || !both) {
            const std::int64_t n = left < 16 ? left : 16;
            copy_bytes(pair[0], pixel, 2 * n);
            if (both) copy_bytes(pair[1], pixel + a.out_channels, 2 * n);
          }
          const U x = left < 16 || !both ? zip(pair[0], pair[1]) : zip(pixel, pixel + a.out_channels);
          store_words(to, x);
          total = add_pairs(total, x);
        }
      }
      store(bias + j, add(load(bias + j), total));
    }
  }
}

template <class T>
void conv3d_weights_of(const Conv3d& a, std::int64_t first_item, std::int64_t last_item, void* scratch, float* sums,
                       float* bias) {
  const std::int64_t pixel = a.channels + a.more_channels;
  const std::int64_t width = round_up(a.out_channels, 16);
  const std::int64_t row_words = (a.width + kPerWord<T> - 1) / kPerWord<T> * width;
  auto* words = static_cast<std::uint32_t*>(scratch);
  std::uint32_t* gradient = words + 3 * (a.band + 2) * (a.width + 2 + kConvSlack) * pixel + 64;
  auto* line = reinterpret_cast<std::uint16_t*>(gradient + a.band * row_words + 64);
  for (std::int64_t item = first_item; item < last_item; ++item) {
    const Band band = band_of(a, item, pixel, words);
    if constexpr (sizeof(T) == 4) {
      fill_band<T>(a, band);
    } else {
      for (std::int64_t i = 0; i < 3 * (band.rows + 2); ++i) {
        join_row(a, row_of(a, band, i / (band.rows + 2), i % (band.rows + 2)), line, pixel);
        clear_bytes(line + (a.width + 2) * pixel, 2 * 2 * pixel);
        pair_pixels(line, a.width + 3, pixel, words + i * band.step);
      }
    }
    gradient_words<T>(a, band, gradient, row_words, bias);
    for (std::int64_t at = 0; at < 9; ++at) {
      for (std::int64_t first = 0; first < 3 * pixel; first += kWideColumns) {
        with_wide_vectors(3 * pixel - first,
                          [&](auto n) { weights_of_band<T, decltype(n)::value>(a, band, gradient, row_words, at, first, sums); });
      }
    }
  }
}

void conv3d_weights(const Conv3d& a, std::int64_t first_item, std::int64_t last_item, void* scratch, float* sums, float* bias) {
  if (a.type == Type::bf16) return conv3d_weights_of<std::uint16_t>(a, first_item, last_item, scratch, sums, bias);
  conv3d_weights_of<float>(a, first_item, last_item, scratch, sums, bias);
}

}  // namespace
