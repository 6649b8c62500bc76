// Blur with [1, 2, 1] x [1, 2, 1] / 16, then soft pooling over 2 x 2 windows. Sixteen planes are processed together, one per
// lane, so that both layouts run the same code on [pixel][lane]. Channels-last planes have this order; contiguous planes are
// transposed while they are read and written.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"

namespace {

// A group of `lanes` planes, at most sixteen. Element (pixel, lane) lies at pixel * pixel_step + lane * lane_step.
struct PlaneGroup {
  std::int64_t first, pixel_step, lane_step, lanes;
};

inline PlaneGroup plane_group(const SoftPool& a, std::int64_t group, std::int64_t pixels) {
  if (!a.channels_last) {
    const std::int64_t left = a.planes - group * 16;
    return {group * 16 * pixels, 1, pixels, left < 16 ? left : 16};
  }
  const std::int64_t groups = (a.channels + 15) / 16;
  const std::int64_t channel = group % groups * 16;
  const std::int64_t left = a.channels - channel;
  return {group / groups * pixels * a.channels + channel, a.channels, 1, left < 16 ? left : 16};
}

// Copies bytes, because words and floats must not alias.
inline void turn(const float* in, float* out) {
  std::uint32_t words[256];
  std::uint32_t turned[256];
  __builtin_memcpy(words, in, sizeof words);
  transpose(words, 16, turned, 16);
  __builtin_memcpy(out, turned, sizeof turned);
}

// Copies planes into `to`: pixels, rounded up to 16, times 16 numbers. Lanes without a plane are zero.
template <class T>
void gather(const PlaneGroup& g, const T* from, std::int64_t pixels, float* to) {
  from += g.first;
  if (g.lane_step == 1) {
    for (std::int64_t p = 0; p < pixels; ++p) store(to + 16 * p, load_some(from + p * g.pixel_step, g.lanes));
    return;
  }
  float block[256] = {};
  for (std::int64_t p = 0; p < pixels; p += 16) {
    for (std::int64_t lane = 0; lane < g.lanes; ++lane) {
      store(block + 16 * lane, load_some(from + lane * g.lane_step + p, pixels - p));
    }
    turn(block, to + 16 * p);
  }
}

template <class T>
void scatter(const PlaneGroup& g, const float* from, std::int64_t pixels, T* to) {
  to += g.first;
  if (g.lane_step == 1) {
    for (std::int64_t p = 0; p < pixels; ++p) store_some(to + p * g.pixel_step, load(from + 16 * p), g.lanes);
    return;
  }
  float block[256];
  for (std::int64_t p = 0; p < pixels; p += 16) {
    turn(from + 16 * p, block);
    for (std::int64_t lane = 0; lane < g.lanes; ++lane) {
      store_some(to + lane * g.lane_step + p, load(block + 16 * lane), pixels - p);
    }
  }
}

// Blurs with [1, 2, 1] x [1, 2, 1] / 16 in place; the blur is its own gradient. `row`: room for two rows of `width` vectors.
inline void blur(float* x, std::int64_t height, std::int64_t width, float* row) {
  const std::int64_t length = 16 * width;
  const F two = splat(2.0F);
  for (std::int64_t h = 0; h < height; ++h) {  // blurs along the rows
    float* line = x + h * length;
    F before = splat(0.0F);
    F here = load(line);
    for (std::int64_t w = 0; w < width; ++w) {
      const F after = w + 1 < width ? load(line + 16 * (w + 1)) : splat(0.0F);
      store(line + 16 * w, fma(here, two, add(before, after)));
      before = here;
      here = after;
    }
  }
  float* above = row;  // the row above, before the blur
  for (std::int64_t i = 0; i < length; i += 16) store(above + i, splat(0.0F));
  const F share = splat(1.0F / 16.0F);
  for (std::int64_t h = 0; h < height; ++h) {
    float* line = x + h * length;
    for (std::int64_t i = 0; i < length; i += 16) {
      const F here = load(line + i);
      const F below = h + 1 < height ? load(line + length + i) : splat(0.0F);
      store(line + i, mul(fma(here, two, add(load(above + i), below)), share));
      store(above + i, here);
    }
  }
}

inline F weight_of(F blurred) { return exponential(min(splat(30.0F), blurred)); }

// Sums over the window of an output.
struct Window {
  F weighted, weights;
};
inline Window window_of(const float* blurred, const float* weights, std::int64_t at, std::int64_t length) {
  Window out{splat(0.0F), splat(0.0F)};
  const std::int64_t corners[] = {at, at + 16, at + length, at + length + 16};
  for (const std::int64_t i : corners) {
    const F e = load(weights + i);
    out.weighted = fma(load(blurred + i), e, out.weighted);
    out.weights = add(out.weights, e);
  }
  return out;
}
// 1 / (4 (mean of the weights + 1e-6)). The factor 4 appears because sums replace means.
inline F window_rate(const Window& window) { return reciprocal(add(window.weights, splat(4e-6F))); }

inline std::int64_t rounded_up(std::int64_t pixels) { return (pixels + 15) / 16 * 16; }

struct PoolScratch {
  float *blurred, *weights, *out, *row, *sums;
};
inline PoolScratch pool_scratch(const SoftPool& a, float* scratch) {
  const std::int64_t in = rounded_up(a.height * a.width) * 16;
  const std::int64_t out = rounded_up(a.out_height * a.out_width) * 16;
  return {scratch, scratch + in, scratch + 2 * in, scratch + 2 * in + out, scratch + 2 * in + out + 16 * a.width};
}

std::size_t soft_pool_scratch(const SoftPool& a) {
  const std::int64_t in = rounded_up(a.height * a.width);
  const std::int64_t out = rounded_up(a.out_height * a.out_width);
  return static_cast<std::size_t>((a.gradient == nullptr ? 2 : 4) * in + out + a.width) * 16 * sizeof(float);
}

template <class T>
void soft_pool_forward(const SoftPool& a, std::int64_t group, const PoolScratch& s) {
  const std::int64_t pixels = a.height * a.width;
  gather(plane_group(a, group, pixels), static_cast<const T*>(a.x), pixels, s.blurred);
  blur(s.blurred, a.height, a.width, s.row);
  for (std::int64_t i = 0; i < 16 * pixels; i += 16) store(s.weights + i, weight_of(load(s.blurred + i)));
  float* out = s.out;
  for (std::int64_t h = 0; h < a.out_height; ++h) {
    for (std::int64_t w = 0; w < a.out_width; ++w, out += 16) {
      const Window window = window_of(s.blurred, s.weights, 16 * a.stride * (h * a.width + w), 16 * a.width);
      store(out, mul(window.weighted, window_rate(window)));
    }
  }
  const std::int64_t out_pixels = a.out_height * a.out_width;
  scatter(plane_group(a, group, out_pixels), s.out, out_pixels, static_cast<T*>(a.out));
}

// With e = exp(min(b, 30)), its derivative e', the sum S of a window's weights and the window's result y: dy/db = (e + e' (b -
// y)) / (S + 4e-6). `sums` holds two sums for every pixel over its windows: of gradient / (S + 4e-6), and of that times y.
template <class T>
void soft_pool_backward(const SoftPool& a, std::int64_t group, const PoolScratch& s) {
  const std::int64_t pixels = a.height * a.width;
  const std::int64_t out_pixels = a.out_height * a.out_width;
  gather(plane_group(a, group, pixels), static_cast<const T*>(a.x), pixels, s.blurred);
  gather(plane_group(a, group, out_pixels), static_cast<const T*>(a.gradient), out_pixels, s.out);
  blur(s.blurred, a.height, a.width, s.row);
  for (std::int64_t i = 0; i < 16 * pixels; i += 16) {
    store(s.weights + i, weight_of(load(s.blurred + i)));
    store(s.sums + 2 * i, splat(0.0F));
    store(s.sums + 2 * i + 16, splat(0.0F));
  }
  const float* gradient = s.out;
  for (std::int64_t h = 0; h < a.out_height; ++h) {
    for (std::int64_t w = 0; w < a.out_width; ++w, gradient += 16) {
      const std::int64_t at = 16 * a.stride * (h * a.width + w);
      const Window window = window_of(s.blurred, s.weights, at, 16 * a.width);
      const F rate = window_rate(window);
      const F share = mul(load(gradient), rate);
      const F result = mul(share, mul(window.weighted, rate));
      const std::int64_t corners[] = {at, at + 16, at + 16 * a.width, at + 16 * a.width + 16};
      for (const std::int64_t i : corners) {
        store(s.sums + 2 * i, add(load(s.sums + 2 * i), share));
        store(s.sums + 2 * i + 16, add(load(s.sums + 2 * i + 16), result));
      }
    }
  }
  for (std::int64_t i = 0; i < 16 * pixels; i += 16) {
    const F b = load(s.blurred + i);
    const F e = load(s.weights + i);
    const F share = load(s.sums + 2 * i);
    const F slope = mul(e, sub(mul(b, share), load(s.sums + 2 * i + 16)));
    store(s.blurred + i, fma(e, share, keep_lanes(not_negative(sub(splat(30.0F), b)), slope)));
  }
  blur(s.blurred, a.height, a.width, s.row);
  scatter(plane_group(a, group, pixels), s.blurred, pixels, static_cast<T*>(a.out));
}

void soft_pool(const SoftPool& a, std::int64_t first_group, std::int64_t last_group, void* scratch) {
  const PoolScratch s = pool_scratch(a, static_cast<float*>(scratch));
  with_type(a.type, [&](auto* x) {
    using T = typename Pointee<decltype(x)>::type;
    for (std::int64_t group = first_group; group < last_group; ++group) {
      if (a.gradient == nullptr) {
        soft_pool_forward<T>(a, group, s);
      } else {
        soft_pool_backward<T>(a, group, s);
      }
    }
  });
}

}  // namespace
