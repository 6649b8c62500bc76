// Keep bits, dropout, activations and the exponential, for sixteen lanes at a time.
#pragma once

#include "millrace/kernels/detail/table.h"

namespace {

using namespace millrace::kernels::detail;

inline F exponential(F x) {  // 2^n * polynomial, relative error 1e-7; NaN stays NaN; x below -87 counts as -87
  x = min(splat(88.0F), max(splat(-87.0F), x));
  const F n = round_to_int(mul(x, splat(1.44269504F)));
  const F r = fnma(n, splat(-2.12194440e-4F), fnma(n, splat(0.693359375F), x));
  F p = fma(splat(1.3981999507e-3F), r, splat(8.3334519073e-3F));
  p = fma(p, r, splat(4.1665795894e-2F));
  p = fma(p, r, splat(1.6666665459e-1F));
  p = fma(p, r, splat(5.0000001201e-1F));
  return times_power_of_two(fma(mul(p, r), r, add(r, splat(1.0F))), n);
}

template <class T>
inline F load_some(const T* p, std::int64_t n) {
  return n >= 16 ? load(p) : load_first(p, static_cast<int>(n));
}
template <class T>
inline void store_some(T* p, F x, std::int64_t n) {
  if (n >= 16) {
    store(p, x);
  } else {
    store_first(p, x, static_cast<int>(n));
  }
}
inline Mask lanes_below(std::int64_t n) { return static_cast<Mask>(n >= 16 ? 0xFFFFU : n <= 0 ? 0U : (1U << n) - 1U); }

// The 128 keep bits of a group, in order.
struct GroupBits {
  std::uint32_t word[4];
  [[nodiscard]] inline Mask lanes(int vector) const { return static_cast<Mask>(word[vector / 2] >> (16 * (vector % 2))); }
};
inline GroupBits group_bits(const Keep& keep, std::int64_t group) {
  if (keep.threshold == 0) return {{~0U, ~0U, ~0U, ~0U}};
  if (keep.threshold > 0xFFFFU) return {{0, 0, 0, 0}};
  const Words random = philox(static_cast<std::uint64_t>(group) * 16U, keep.key);
  GroupBits bits;
  for (int w = 0; w < 4; ++w) bits.word[w] = halves_at_least(random.word[w], keep.threshold);
  return bits;
}

void keep_bits(const Keep& keep, std::int64_t first_group, std::int64_t groups, std::uint8_t* bits) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const GroupBits group = group_bits(keep, first_group + g);
    __builtin_memcpy(bits + 16 * g, group.word, 16);
  }
}

// The keep bits of `count` elements from any first element on, for kernels whose rows need not begin at a group. The buffer has
// row_bits_size(count) bytes.
struct RowBits {
  const std::uint8_t* bits;  // null = keep all
  std::int64_t offset;
  [[nodiscard]] inline Mask lanes(std::int64_t i) const {
    if (bits == nullptr) return static_cast<Mask>(0xFFFFU);
    std::uint32_t word;
    __builtin_memcpy(&word, bits + (offset + i) / 8, 4);
    return static_cast<Mask>(word >> ((offset + i) % 8));
  }
};
inline RowBits row_bits(const Keep& keep, std::int64_t first, std::int64_t count, std::uint8_t* buffer) {
  if (keep.threshold == 0) return {nullptr, 0};
  first += keep.first;
  const std::int64_t group = first / 128;
  keep_bits(keep, group, (first + count - 1) / 128 - group + 1, buffer);
  return {buffer, first % 128};
}

// for_each_vector() for a tensor whose groups of 128 elements each overlap two groups of the site.
template <class Body>
inline void for_each_vector_between(const Keep& keep, std::int64_t count, std::int64_t first, std::int64_t last, Body body) {
  std::uint8_t buffer[2 * 16 + 4];
  for (std::int64_t i = first; i < last; i += 128) {
    const RowBits bits = row_bits(keep, i, 128, buffer);
    for (std::int64_t v = 0; v < 128; v += 16) {
      if (i + v >= count) return;
      body(i + v, count - i - v, bits.lanes(v));
    }
  }
}

// Calls body(first element, lanes wanted, keep mask) for each vector of the tensor's groups of 128 elements.
template <class Body>
inline void for_each_vector(const Keep& keep, std::int64_t count, std::int64_t first_group, std::int64_t last_group, Body body) {
  if (keep.first % 128 != 0) return for_each_vector_between(keep, count, 128 * first_group, 128 * last_group, body);
  const std::int64_t offset = keep.first / 128;
  for (std::int64_t g = first_group; g < last_group; ++g) {
    const GroupBits bits = group_bits(keep, offset + g);
    for (int v = 0; v < 8; ++v) {
      const std::int64_t i = g * 128 + 16 * v;
      if (i >= count) return;
      body(i, count - i, bits.lanes(v));
    }
  }
}

template <class X, class O>
void dropout_of(const DropoutArgs& a, std::int64_t first_group, std::int64_t last_group) {
  const auto* x = static_cast<const X*>(a.x);
  const auto* residual = static_cast<const O*>(a.residual);
  auto* out = static_cast<O*>(a.out);
  const F scale = splat(a.keep.scale);
  for_each_vector(a.keep, a.count, first_group, last_group, [&](std::int64_t i, std::int64_t n, Mask mask) {
    F y = keep_lanes(mask, mul(load_some(x + i, n), scale));
    if (residual != nullptr) y = add(load_some(residual + i, n), y);
    store_some(out + i, y, n);
  });
}

struct Gauss {
  F cdf, pdf;
};
inline Gauss gauss(F x) {  // error function by Abramowitz and Stegun 7.1.26, 1.5e-7
  const F e = exponential(mul(mul(x, x), splat(-0.5F)));
  const F z = min(splat(1e18F), mul(absolute(x), splat(0.70710678F)));  // avoids the reciprocal of infinity; NaN stays
  const F t = reciprocal(fma(z, splat(0.3275911F), splat(1.0F)));
  F p = fma(splat(1.061405429F), t, splat(-1.453152027F));
  p = fma(p, t, splat(1.421413741F));
  p = fma(p, t, splat(-0.284496736F));
  p = fma(p, t, splat(0.254829592F));
  const F tail = mul(mul(p, t), mul(e, splat(0.5F)));
  return {select(not_negative(x), sub(splat(1.0F), tail), tail), mul(e, splat(0.39894228F))};
}

template <class X>
void gelu_of(const GeluArgs& a, std::int64_t first_group, std::int64_t last_group) {
  const auto* x = static_cast<const X*>(a.x);
  const auto* gradient = static_cast<const X*>(a.gradient);
  auto* out = static_cast<X*>(a.out);
  const F scale = splat(a.keep.scale);
  for_each_vector(a.keep, a.count, first_group, last_group, [&](std::int64_t i, std::int64_t n, Mask mask) {
    const F v = load_some(x + i, n);
    const Gauss g = gauss(v);
    const F y = gradient == nullptr ? mul(v, g.cdf) : mul(load_some(gradient + i, n), fma(v, g.pdf, g.cdf));
    store_some(out + i, keep_lanes(mask, mul(y, scale)), n);
  });
}

// Applies f to each vector of x and, in the backward pass, to the gradient at the same place.
template <class X, class Forward, class Backward>
void pointwise(const PointwiseArgs& a, std::int64_t first_group, std::int64_t last_group, Forward forward, Backward backward) {
  const auto* x = static_cast<const X*>(a.x);
  const auto* gradient = static_cast<const X*>(a.gradient);
  auto* out = static_cast<X*>(a.out);
  const std::int64_t end = last_group * 128 < a.count ? last_group * 128 : a.count;
  for (std::int64_t i = first_group * 128; i < end; i += 16) {
    const F v = load_some(x + i, end - i);
    store_some(out + i, gradient == nullptr ? forward(v) : backward(load_some(gradient + i, end - i), v), end - i);
  }
}

inline F logistic(F x) { return reciprocal(add(splat(1.0F), exponential(sub(splat(0.0F), max(splat(-80.0F), x))))); }

// gradient * silu'(h).
inline F silu_gradient(F gradient, F h) {
  const F s = logistic(h);
  return mul(gradient, mul(s, fma(h, sub(splat(1.0F), s), splat(1.0F))));
}

// x sigmoid(1.702 x), which is silu(1.702 x) / 1.702.
inline F quick_gelu_of(F x) { return mul(x, logistic(mul(x, splat(1.702F)))); }

template <class X>
void quick_gelu_of(const PointwiseArgs& a, std::int64_t first_group, std::int64_t last_group) {
  pointwise<X>(
      a, first_group, last_group, [](F v) { return quick_gelu_of(v); },
      [](F gradient, F v) { return silu_gradient(gradient, mul(v, splat(1.702F))); });
}

// With c = x clamped to [-1, 1]: s(x) = (-|c|^3/3 + c^2 + 2c + 1/3 + min(x + 1, 0) + 3 max(x - 1, 0)) / 3.5, which needs no
// branch. NaN passes through the clamp, because it is the second argument.
template <class X>
void smooth_leaky_of(const PointwiseArgs& a, std::int64_t first_group, std::int64_t last_group) {
  const F one = splat(1.0F);
  const F scale = splat(1.0F / 3.5F);
  const auto clamped = [&](F v) { return min(one, max(splat(-1.0F), v)); };
  pointwise<X>(
      a, first_group, last_group,
      [&](F v) {
        const F c = clamped(v);
        const F inner = fma(fma(absolute(c), splat(-1.0F / 3.0F), one), mul(c, c), fma(c, splat(2.0F), splat(1.0F / 3.0F)));
        const F below = min(add(v, one), splat(0.0F));
        const F above = mul(max(sub(v, one), splat(0.0F)), splat(3.0F));
        return mul(add(inner, add(below, above)), scale);
      },
      [&](F gradient, F v) {
        const F c = clamped(v);
        return mul(mul(gradient, fma(c, sub(splat(2.0F), absolute(c)), splat(2.0F))), scale);
      });
}

// Calls run with the element type, once per pair of types, so that the loops above know their types at compile time.
template <class Run>
inline void with_type(Type type, Run run) {
  if (type == Type::f32) {
    run(static_cast<float*>(nullptr));
  } else {
    run(static_cast<std::uint16_t*>(nullptr));
  }
}
template <class T>
struct Pointee;
template <class T>
struct Pointee<T*> {
  using type = T;
};

void dropout(const DropoutArgs& a, std::int64_t first_group, std::int64_t last_group) {
  with_type(a.x_type, [&](auto* x) {
    with_type(a.out_type, [&](auto* out) {
      dropout_of<typename Pointee<decltype(x)>::type, typename Pointee<decltype(out)>::type>(a, first_group, last_group);
    });
  });
}

void gelu(const GeluArgs& a, std::int64_t first_group, std::int64_t last_group) {
  with_type(a.type, [&](auto* x) { gelu_of<typename Pointee<decltype(x)>::type>(a, first_group, last_group); });
}

void quick_gelu(const PointwiseArgs& a, std::int64_t first_group, std::int64_t last_group) {
  with_type(a.type, [&](auto* x) { quick_gelu_of<typename Pointee<decltype(x)>::type>(a, first_group, last_group); });
}

void smooth_leaky(const PointwiseArgs& a, std::int64_t first_group, std::int64_t last_group) {
  with_type(a.type, [&](auto* x) { smooth_leaky_of<typename Pointee<decltype(x)>::type>(a, first_group, last_group); });
}

}  // namespace
