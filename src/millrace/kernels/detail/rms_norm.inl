// RMS norm over channels, then SiLU. Contiguous volumes are processed in blocks of up to 64 neighbouring positions, whose
// channels all stay in the second cache between the passes. Channels-last volumes are processed position by position.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"
#include "millrace/kernels/detail/tile.inl"

namespace {

inline float rms_rate(const RmsNorm& a, float squares) {
  return 1.0F / __builtin_sqrtf(squares / static_cast<float>(a.channels) + a.epsilon);
}

// Handles NV vectors of neighbouring positions. With NV = 1 only the first `lanes` positions count.
template <class T, int NV>
void rms_strip_forward(const RmsNorm& a, std::int64_t first, std::int64_t position, std::int64_t lanes) {
  const auto* x = static_cast<const T*>(a.x) + first;
  auto* out = static_cast<T*>(a.out) + first;
  F total[NV];
  for (int v = 0; v < NV; ++v) total[v] = splat(0.0F);
  for (std::int64_t c = 0; c < a.channels; ++c) {
    for (int v = 0; v < NV; ++v) {
      const F value = NV > 1 ? load(x + c * a.positions + 16 * v) : load_some(x + c * a.positions, lanes);
      total[v] = fma(value, value, total[v]);
    }
  }
  float rates[16 * NV];
  for (int v = 0; v < NV; ++v) store(rates + 16 * v, total[v]);
  for (float& rate : rates) rate = rms_rate(a, rate);
  F rate[NV];
  for (int v = 0; v < NV; ++v) {
    rate[v] = load(rates + 16 * v);
    store_some(a.rates + position + 16 * v, rate[v], lanes);
  }
  for (std::int64_t c = 0; c < a.channels; ++c) {
    for (int v = 0; v < NV; ++v) {
      const std::int64_t at = c * a.positions + 16 * v;
      const F h = mul(NV > 1 ? load(x + at) : load_some(x + at, lanes), rate[v]);
      const F y = mul(h, logistic(h));
      if (NV > 1) {
        store(out + at, y);
      } else {
        store_some(out + at, y, lanes);
      }
    }
  }
}

// `scratch`: channels * 16 * NV floats.
template <class T, int NV>
void rms_strip_backward(const RmsNorm& a, std::int64_t first, std::int64_t position, std::int64_t lanes, float* scratch) {
  const auto* x = static_cast<const T*>(a.x) + first;
  const auto* gradient = static_cast<const T*>(a.gradient) + first;
  auto* out = static_cast<T*>(a.out) + first;
  const auto get = [&](const T* from, std::int64_t at) { return NV > 1 ? load(from + at) : load_some(from + at, lanes); };
  F rate[NV];
  F total[NV];
  for (int v = 0; v < NV; ++v) {
    rate[v] = load_some(a.rates + position + 16 * v, lanes);
    total[v] = splat(0.0F);
  }
  for (std::int64_t c = 0; c < a.channels; ++c) {
    for (int v = 0; v < NV; ++v) {
      const std::int64_t at = c * a.positions + 16 * v;
      const F h = mul(get(x, at), rate[v]);
      const F u = silu_gradient(get(gradient, at), h);
      total[v] = fma(u, h, total[v]);
      store(scratch + (c * NV + v) * 16, u);
    }
  }
  const F share = splat(1.0F / static_cast<float>(a.channels));
  for (int v = 0; v < NV; ++v) total[v] = mul(total[v], share);
  for (std::int64_t c = 0; c < a.channels; ++c) {
    for (int v = 0; v < NV; ++v) {
      const std::int64_t at = c * a.positions + 16 * v;
      const F h = mul(get(x, at), rate[v]);
      const F y = mul(rate[v], fnma(h, total[v], load(scratch + (c * NV + v) * 16)));
      if (NV > 1) {
        store(out + at, y);
      } else {
        store_some(out + at, y, lanes);
      }
    }
  }
}

template <class T>
void rms_row_forward(const RmsNorm& a, std::int64_t row) {
  const auto* x = static_cast<const T*>(a.x) + row * a.channels;
  auto* out = static_cast<T*>(a.out) + row * a.channels;
  F total = splat(0.0F);
  for (std::int64_t c = 0; c < a.channels; c += 16) {
    const F value = load_some(x + c, a.channels - c);
    total = fma(value, value, total);
  }
  const float rate = rms_rate(a, sum(total));
  a.rates[row] = rate;
  for (std::int64_t c = 0; c < a.channels; c += 16) {
    const F h = mul(load_some(x + c, a.channels - c), splat(rate));
    store_some(out + c, mul(h, logistic(h)), a.channels - c);
  }
}

template <class T>
void rms_row_backward(const RmsNorm& a, std::int64_t row, float* scratch) {
  const auto* x = static_cast<const T*>(a.x) + row * a.channels;
  const auto* gradient = static_cast<const T*>(a.gradient) + row * a.channels;
  auto* out = static_cast<T*>(a.out) + row * a.channels;
  const F rate = splat(a.rates[row]);
  F total = splat(0.0F);
  for (std::int64_t c = 0; c < a.channels; c += 16) {
    const F h = mul(load_some(x + c, a.channels - c), rate);
    const F u = silu_gradient(load_some(gradient + c, a.channels - c), h);
    total = fma(u, h, total);
    store(scratch + c, u);
  }
  const F mean = splat(sum(total) / static_cast<float>(a.channels));
  for (std::int64_t c = 0; c < a.channels; c += 16) {
    const F h = mul(load_some(x + c, a.channels - c), rate);
    store_some(out + c, mul(rate, fnma(h, mean, load(scratch + c))), a.channels - c);
  }
}

template <class T>
void rms_block(const RmsNorm& a, std::int64_t block, float* scratch) {
  if (a.channels_last) {
    const std::int64_t rows = a.samples * a.positions;
    const std::int64_t first = block * kRmsBlock;
    const std::int64_t last = first + kRmsBlock < rows ? first + kRmsBlock : rows;
    for (std::int64_t row = first; row < last; ++row) {
      if (a.gradient == nullptr) {
        rms_row_forward<T>(a, row);
      } else {
        rms_row_backward<T>(a, row, scratch);
      }
    }
    return;
  }
  const std::int64_t blocks = (a.positions + kRmsBlock - 1) / kRmsBlock;
  const std::int64_t sample = block / blocks;
  const auto strip = [&](auto vectors, std::int64_t p, std::int64_t lanes) {
    const std::int64_t first = sample * a.channels * a.positions + p;
    const std::int64_t position = sample * a.positions + p;
    if (a.gradient == nullptr) {
      rms_strip_forward<T, decltype(vectors)::value>(a, first, position, lanes);
    } else {
      rms_strip_backward<T, decltype(vectors)::value>(a, first, position, lanes, scratch);
    }
  };
  std::int64_t p = block % blocks * kRmsBlock;
  if (p + kRmsBlock <= a.positions) return strip(Int<kRmsBlock / 16>{}, p, kRmsBlock);
  for (; p < a.positions; p += 16) strip(Int<1>{}, p, a.positions - p);
}

std::size_t rms_norm_scratch(const RmsNorm& a) {
  return static_cast<std::size_t>((a.channels + 15) / 16 * 16) * kRmsBlock * sizeof(float);
}

void rms_norm(const RmsNorm& a, std::int64_t first_block, std::int64_t last_block, void* scratch) {
  with_type(a.type, [&](auto* x) {
    for (std::int64_t block = first_block; block < last_block; ++block) {
      rms_block<typename Pointee<decltype(x)>::type>(a, block, static_cast<float*>(scratch));
    }
  });
}

}  // namespace
