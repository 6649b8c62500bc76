// Group norm and its activation. The kernels sum over single channels; the caller adds the sums up over groups and sets each
// channel's numbers for the second pass. Contiguous volumes are processed along a channel, channels-last volumes position by
// position, with sums in strips of up to 64 channels.
#pragma once

#include "millrace/kernels/detail/rms_norm.inl"

namespace {

struct Silu {
  [[nodiscard]] inline F value(F h) const { return mul(h, logistic(h)); }
  [[nodiscard]] inline F gradient(F gradient, F h) const { return silu_gradient(gradient, h); }
};
struct Ramp {
  F slope;  // slope below zero
  [[nodiscard]] inline F value(F h) const { return select(not_negative(h), h, mul(h, slope)); }
  [[nodiscard]] inline F gradient(F gradient, F h) const { return select(not_negative(h), gradient, mul(gradient, slope)); }
};

// Calls run(null pointer of x's type, activation).
template <class Run>
inline void with_type_and_activation(const GroupNorm& a, Run run) {
  with_type(a.type, [&](auto* x) {
    if (a.silu) {
      run(x, Silu{});
    } else {
      run(x, Ramp{splat(a.slope)});
    }
  });
}

// The positions of a share: in one channel, or with channels_last in `channels` neighbouring channels. `channel` counts over all
// samples.
struct Stretch {
  std::int64_t first, positions, channel;
  float* partials;
};
inline Stretch stretch_of(const GroupNorm& a, std::int64_t share) {
  const std::int64_t row = share / a.segments;
  const std::int64_t begin = share % a.segments * a.segment;
  const std::int64_t left = a.positions - begin;
  const std::int64_t positions = left < a.segment ? left : a.segment;
  if (!a.channels_last) return {row * a.positions + begin, positions, row, a.partials + 2 * share};
  return {(row * a.positions + begin) * a.channels, positions, row * a.channels, a.partials + 2 * share * a.channels};
}

// Calls body(which of four sums, first element, number of lanes) for each vector of a channel.
template <class Body>
inline void along(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) body(v, i + 16 * v, 16);
  }
  for (; i < count; i += 16) body(0, i, count - i);
}
inline float sum_of_four(const F (&total)[4]) { return sum(add(add(total[0], total[1]), add(total[2], total[3]))); }

// Calls body(which of four sums, vector of the strip, channel, position) for a strip of `channels`, which fill NV vectors.
template <int NV, class Body>
inline void down(std::int64_t positions, Body body) {
  constexpr int kRows = 4 / NV;
  std::int64_t p = 0;
  for (; p + kRows <= positions; p += kRows) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) body(NV * r + v, v, p + r);
    }
  }
  for (; p < positions; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) body(v, v, p);
  }
}
template <int NV>
inline F sum_of_places(const F (&total)[4], int v) {
  if constexpr (NV == 4) return total[v];
  if constexpr (NV == 2) return add(total[v], total[2 + v]);
  return add(add(total[0], total[1]), add(total[2], total[3]));
}
inline void clear_four(F (&total)[4]) {
  for (F& one : total) one = splat(0.0F);
}

// Computes the sum, and the squared distances from the mean.
template <class T>
void moments_along(const GroupNorm& a, const Stretch& s) {
  const auto* x = static_cast<const T*>(a.x) + s.first;
  F total[4];
  clear_four(total);
  along(s.positions, [&](int v, std::int64_t i, std::int64_t lanes) { total[v] = add(total[v], load_some(x + i, lanes)); });
  s.partials[0] = sum_of_four(total);
  const F mean = splat(s.partials[0] / static_cast<float>(s.positions));
  clear_four(total);
  along(s.positions, [&](int v, std::int64_t i, std::int64_t lanes) {
    const F d = keep_lanes(lanes_below(lanes), sub(load_some(x + i, lanes), mean));
    total[v] = fma(d, d, total[v]);
  });
  s.partials[1] = sum_of_four(total);
}

template <class T, int NV>
void moments_down(const GroupNorm& a, const Stretch& s, std::int64_t channel, std::int64_t lanes) {
  const auto* x = static_cast<const T*>(a.x) + s.first + channel;
  const auto get = [&](int v, std::int64_t p) {
    const T* at = x + p * a.channels + 16 * v;
    return NV > 1 ? load(at) : load_some(at, lanes);
  };
  F total[4];
  clear_four(total);
  down<NV>(s.positions, [&](int place, int v, std::int64_t p) { total[place] = add(total[place], get(v, p)); });
  const F share = splat(1.0F / static_cast<float>(s.positions));
  F mean[NV];
  for (int v = 0; v < NV; ++v) {
    const F whole = sum_of_places<NV>(total, v);
    store_some(s.partials + channel + 16 * v, whole, NV > 1 ? 16 : lanes);
    mean[v] = mul(whole, share);
  }
  clear_four(total);
  down<NV>(s.positions, [&](int place, int v, std::int64_t p) {
    const F d = sub(get(v, p), mean[v]);
    total[place] = fma(d, d, total[place]);
  });
  for (int v = 0; v < NV; ++v) {
    store_some(s.partials + a.channels + channel + 16 * v, sum_of_places<NV>(total, v), NV > 1 ? 16 : lanes);
  }
}

// Sums the gradient of the activation's input, and its product with the normalised x.
template <class T, class Act>
void sums_along(const GroupNorm& a, const Stretch& s, Act act) {
  const auto* x = static_cast<const T*>(a.x) + s.first;
  const auto* gradient = static_cast<const T*>(a.gradient) + s.first;
  const F scale = splat(a.scale[s.channel]);
  const F shift = splat(a.shift[s.channel]);
  const F rate = splat(a.factor[s.channel]);
  const F start = splat(a.offset[s.channel]);
  F total[4];
  F products[4];
  clear_four(total);
  clear_four(products);
  along(s.positions, [&](int v, std::int64_t i, std::int64_t lanes) {
    const F value = load_some(x + i, lanes);
    const F g = act.gradient(load_some(gradient + i, lanes), fma(value, scale, shift));  // 0 past the end
    total[v] = add(total[v], g);
    products[v] = fma(g, fma(value, rate, start), products[v]);
  });
  s.partials[0] = sum_of_four(total);
  s.partials[1] = sum_of_four(products);
}

template <class T, int NV, class Act>
void sums_down(const GroupNorm& a, const Stretch& s, std::int64_t channel, std::int64_t lanes, Act act) {
  const std::int64_t first = s.first + channel;
  const auto* x = static_cast<const T*>(a.x) + first;
  const auto* gradient = static_cast<const T*>(a.gradient) + first;
  const auto get = [&](const auto* from) { return NV > 1 ? load(from) : load_some(from, lanes); };
  F scale[NV];
  F shift[NV];
  F rate[NV];
  F start[NV];
  for (int v = 0; v < NV; ++v) {
    const std::int64_t c = s.channel + channel + 16 * v;
    scale[v] = get(a.scale + c);
    shift[v] = get(a.shift + c);
    rate[v] = get(a.factor + c);
    start[v] = get(a.offset + c);
  }
  F total[4];
  F products[4];
  clear_four(total);
  clear_four(products);
  down<NV>(s.positions, [&](int place, int v, std::int64_t p) {
    const std::int64_t at = p * a.channels + 16 * v;
    const F value = get(x + at);
    const F g = act.gradient(get(gradient + at), fma(value, scale[v], shift[v]));
    total[place] = add(total[place], g);
    products[place] = fma(g, fma(value, rate[v], start[v]), products[place]);
  });
  for (int v = 0; v < NV; ++v) {
    store_some(s.partials + channel + 16 * v, sum_of_places<NV>(total, v), NV > 1 ? 16 : lanes);
    store_some(s.partials + a.channels + channel + 16 * v, sum_of_places<NV>(products, v), NV > 1 ? 16 : lanes);
  }
}

// Computes the result, or the gradient of x. `a` must be the caller's local copy, because the compiler assumes that storing a
// vector may change any other struct.
template <class T, class Act>
inline void apply_to(const GroupNorm& a, std::int64_t at, std::int64_t lanes, F scale, F shift, F factor, F offset, Act act) {
  const F value = load_some(static_cast<const T*>(a.x) + at, lanes);
  const F h = fma(value, scale, shift);
  F y;
  if (a.gradient == nullptr) {
    y = act.value(h);
  } else {
    const F g = act.gradient(load_some(static_cast<const T*>(a.gradient) + at, lanes), h);
    y = fma(scale, g, fma(value, factor, offset));
  }
  store_some(static_cast<T*>(a.out) + at, y, lanes);
}

template <class T, class Act>
void apply_along(const GroupNorm a, const Stretch& s, Act act) {
  const F scale = splat(a.scale[s.channel]);
  const F shift = splat(a.shift[s.channel]);
  const F factor = splat(a.gradient == nullptr ? 0.0F : a.factor[s.channel]);
  const F offset = splat(a.gradient == nullptr ? 0.0F : a.offset[s.channel]);
  along(s.positions,
        [&](int, std::int64_t i, std::int64_t lanes) { apply_to<T>(a, s.first + i, lanes, scale, shift, factor, offset, act); });
}

template <class T, class Act>
void apply_across(const GroupNorm a, const Stretch& s, Act act) {
  for (std::int64_t p = 0; p < s.positions; ++p) {
    along(a.channels, [&](int, std::int64_t c, std::int64_t lanes) {
      const std::int64_t channel = s.channel + c;
      const F scale = load_some(a.scale + channel, lanes);
      const F shift = load_some(a.shift + channel, lanes);
      const F factor = a.gradient == nullptr ? splat(0.0F) : load_some(a.factor + channel, lanes);
      const F offset = a.gradient == nullptr ? splat(0.0F) : load_some(a.offset + channel, lanes);
      apply_to<T>(a, s.first + p * a.channels + c, lanes, scale, shift, factor, offset, act);
    });
  }
}

// Calls body(Int<vectors>, first channel, lanes) for the strips of all channels. `lanes` counts if the strip is a single vector.
template <class Body>
inline void for_each_strip(std::int64_t channels, Body body) {
  std::int64_t c = 0;
  for (; c + 64 <= channels; c += 64) body(Int<4>{}, c, 64);
  for (; c + 32 <= channels; c += 32) body(Int<2>{}, c, 32);
  for (; c < channels; c += 16) body(Int<1>{}, c, channels - c);
}

void group_norm_moments(const GroupNorm& a, std::int64_t first_share, std::int64_t last_share) {
  with_type(a.type, [&](auto* x) {
    using T = typename Pointee<decltype(x)>::type;
    for (std::int64_t share = first_share; share < last_share; ++share) {
      const Stretch s = stretch_of(a, share);
      if (!a.channels_last) {
        moments_along<T>(a, s);
        continue;
      }
      for_each_strip(a.channels, [&](auto vectors, std::int64_t c, std::int64_t lanes) {
        moments_down<T, decltype(vectors)::value>(a, s, c, lanes);
      });
    }
  });
}

void group_norm_sums(const GroupNorm& a, std::int64_t first_share, std::int64_t last_share) {
  with_type_and_activation(a, [&](auto* x, auto act) {
    using T = typename Pointee<decltype(x)>::type;
    for (std::int64_t share = first_share; share < last_share; ++share) {
      const Stretch s = stretch_of(a, share);
      if (!a.channels_last) {
        sums_along<T>(a, s, act);
        continue;
      }
      for_each_strip(a.channels, [&](auto vectors, std::int64_t c, std::int64_t lanes) {
        sums_down<T, decltype(vectors)::value>(a, s, c, lanes, act);
      });
    }
  });
}

void group_norm_apply(const GroupNorm& a, std::int64_t first_share, std::int64_t last_share) {
  with_type_and_activation(a, [&](auto* x, auto act) {
    using T = typename Pointee<decltype(x)>::type;
    for (std::int64_t share = first_share; share < last_share; ++share) {
      const Stretch s = stretch_of(a, share);
      if (a.channels_last) {
        apply_across<T>(a, s, act);
      } else {
        apply_along<T>(a, s, act);
      }
    }
  });
}

}  // namespace
