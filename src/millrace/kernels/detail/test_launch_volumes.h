// For tests: runs the launches of device/cuda/{circular_pad,rms_norm,group_norm,soft_pool}.cu on the CPU. test_launch.h has the
// launches of other files.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "millrace/kernels/circular_lane.h"
#include "millrace/kernels/detail/test_launch.h"
#include "millrace/kernels/group_norm_lane.h"
#include "millrace/kernels/rms_norm_lane.h"
#include "millrace/kernels/soft_pool_lane.h"

namespace millrace::kernels::launched {

template <class X, class E>
inline constexpr int kInPiece = sizeof(E) / sizeof(X);

template <class X>
bool begins_piece(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0;
}

// Calls body(thread) for `count` pieces of work, each with its own thread.
template <class Body>
void each_of(std::int64_t count, Order& order, const Body& body) {
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  require(blocks > 0 && blocks < std::int64_t{1} << 31, std::to_string(blocks) + " blocks");
  order.each(blocks, [&](std::int64_t block) {
    order.each(kThreads, [&](std::int64_t thread) {
      if (block * kThreads + thread < count) body(block * kThreads + thread);
    });
  });
}

// ---- Circular padding: circular_pad.cu

template <class X, class E>
void pad(const detail::PaddedVolume& v, const X* in, X* out, std::int64_t i) {
  constexpr int kElements = kInPiece<X, E>;
  const detail::PixelPiece at = detail::piece_of(i, v.pixel / kElements, kElements, v.depth + 2, v.height + 2, v.width + 2);
  const std::int64_t from = detail::plain_place(v, at.plane, detail::wrapped(at.d - 1, v.depth),
                                                detail::wrapped(at.h - 1, v.height), detail::wrapped(at.w - 1, v.width));
  *reinterpret_cast<E*>(out + detail::padded_place(v, at.plane, at.d, at.h, at.w) + at.element) =
      *reinterpret_cast<const E*>(in + from + at.element);
}

template <class X, class E>
void unpad(const detail::PaddedVolume& v, const X* in, X* out, std::int64_t i) {
  constexpr int kElements = kInPiece<X, E>;
  const detail::PixelPiece at = detail::piece_of(i, v.pixel / kElements, kElements, v.depth, v.height, v.width);
  X* const to = out + detail::plain_place(v, at.plane, at.d, at.h, at.w) + at.element;
  std::array<float, kElements> sums{};
  for (int d = 0; d < detail::times_shown(at.d, v.depth); ++d) {
    for (int h = 0; h < detail::times_shown(at.h, v.height); ++h) {
      for (int w = 0; w < detail::times_shown(at.w, v.width); ++w) {
        const X* const from = in + at.element +
                              detail::padded_place(v, at.plane, detail::shown_at(at.d, v.depth, d),
                                                   detail::shown_at(at.h, v.height, h), detail::shown_at(at.w, v.width, w));
        for (std::size_t k = 0; k < kElements; ++k) sums[k] += static_cast<float>(from[k]);
      }
    }
  }
  for (std::size_t k = 0; k < kElements; ++k) to[k] = static_cast<X>(sums[k]);
}

template <class X, class E>
void circular_pad_of(const CircularPad& args, Order& order) {
  const detail::PaddedVolume& v = args.volume;
  const std::int64_t edge = args.backward ? 0 : 2;
  const std::int64_t count =
      v.samples * v.planes * (v.depth + edge) * (v.height + edge) * (v.width + edge) * (v.pixel / kInPiece<X, E>);
  require(count < std::int64_t{1} << 31, "a volume for several launches");
  const auto* const in = static_cast<const X*>(args.in);
  auto* const out = static_cast<X*>(args.out);
  each_of(count, order, [&](std::int64_t i) { args.backward ? unpad<X, E>(v, in, out, i) : pad<X, E>(v, in, out, i); });
}

inline void circular_pad(const CircularPad& args, Order order = {}) {
  with_types(args.type, args.type, [&]<class X, class>() {
    const detail::PaddedVolume& v = args.volume;
    const auto whole = [](std::int64_t number) { return number % Piece<X>::kElements == 0; };
    const bool pieces =
        whole(v.pixel) && whole(v.step) && whole(v.padded_first) && begins_piece<X>(args.in) && begins_piece<X>(args.out);
    if (pieces) return circular_pad_of<X, Piece<X>>(args, order);
    circular_pad_of<X, X>(args, order);
  });
}

// ---- Blurred soft pooling: soft_pool.cu

inline void soft_pool(const detail::SoftPool& args, Order order = {}) {
  require(detail::pool_threads(args) < std::int64_t{1} << 31, "more threads than fit into a launch");
  with_types(args.type, args.type, [&]<class X, class>() {
    each_of(detail::pool_threads(args), order, [&](std::int64_t i) { detail::soft_pool_element<X>(args, i); });
  });
}

// ---- RMS norm: rms_norm.cu

template <class X>
void rms_position(const detail::RmsNorm& a, std::int64_t i) {
  const std::int64_t first = i / a.positions * a.channels * a.positions + i % a.positions;
  const X* const x = static_cast<const X*>(a.x) + first;
  const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + first;
  X* const out = static_cast<X*>(a.out) + first;
  float rate = a.gradient == nullptr ? 0.0F : a.rates[i], total = 0;
  for (std::int64_t c = 0; c < a.channels * a.positions; c += a.positions)
    total += detail::rms_addend(a, static_cast<float>(x[c]), static_cast<float>(gradient[c]), rate);
  const auto count = static_cast<float>(a.channels);
  if (a.gradient == nullptr) a.rates[i] = rate = detail::rms_rate(total, count, a.epsilon);
  for (std::int64_t c = 0; c < a.channels * a.positions; c += a.positions)
    out[c] =
        static_cast<X>(detail::rms_result(a, static_cast<float>(x[c]), static_cast<float>(gradient[c]), rate, total / count));
}

// Calls body(channel) for each channel that a lane handles; a lane handles `together` neighbours at a time.
template <class Body>
void channels_of_lane(std::int64_t channels, std::int64_t together, std::int64_t lane, const Body& body) {
  for (std::int64_t p = lane; p < channels / together; p += kWarp)
    for (std::int64_t c = p * together; c < (p + 1) * together; ++c) body(c);
}

template <class X>
void rms_pixel(const detail::RmsNorm& a, std::int64_t i, std::int64_t together) {
  const X* const x = static_cast<const X*>(a.x) + i * a.channels;
  const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + i * a.channels;
  X* const out = static_cast<X*>(a.out) + i * a.channels;
  float rate = a.gradient == nullptr ? 0.0F : a.rates[i];
  OfLanes totals{};
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    channels_of_lane(a.channels, together, static_cast<std::int64_t>(lane), [&](std::int64_t c) {
      totals[lane] += detail::rms_addend(a, static_cast<float>(x[c]), static_cast<float>(gradient[c]), rate);
    });
  }
  const float total = over_warp(totals)[0];
  const auto count = static_cast<float>(a.channels);
  if (a.gradient == nullptr) a.rates[i] = rate = detail::rms_rate(total, count, a.epsilon);
  for (std::int64_t c = 0; c < a.channels; ++c)
    out[c] =
        static_cast<X>(detail::rms_result(a, static_cast<float>(x[c]), static_cast<float>(gradient[c]), rate, total / count));
}

inline void rms_norm(const detail::RmsNorm& a, Order order = {}) {
  with_types(a.type, a.type, [&]<class X, class>() {
    const bool pieces =
        a.channels % Piece<X>::kElements == 0 && begins_piece<X>(a.x) && begins_piece<X>(a.gradient) && begins_piece<X>(a.out);
    const std::int64_t together = pieces ? Piece<X>::kElements : 1;
    // Each position has a thread, or a warp if the tensor is channels-last.
    each_of(a.samples * a.positions, order,
            [&](std::int64_t i) { a.channels_last ? rms_pixel<X>(a, i, together) : rms_position<X>(a, i); });
  });
}

// ---- Group norm: group_norm.cu

// The work of a block for a contiguous tensor: one split of the positions of a sample's channel.
template <class X>
void sum_plane(const DeviceGroupNorm& a, std::int64_t together, std::int64_t block, std::int64_t split, Order& order) {
  const std::int64_t sample = block / a.channels, channel = block % a.channels, pieces = a.positions / together;
  const std::int64_t place = (sample * a.channels + channel) * a.positions;
  const X* const x = static_cast<const X*>(a.x) + place;
  const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + place;
  const detail::Known known = detail::known_of<X>(a, sample, channel);
  std::array<std::array<OfLanes, kThreads / kWarp>, 2> sums{};
  order.each(kThreads, [&](std::int64_t thread) {
    float first = 0, second = 0;
    for (std::int64_t i = pieces * split / a.splits + thread; i < pieces * (split + 1) / a.splits; i += kThreads)
      for (std::int64_t p = i * together; p < (i + 1) * together; ++p)
        detail::add(a, known, static_cast<float>(x[p]), static_cast<float>(gradient[p]), first, second);
    const auto warp = static_cast<std::size_t>(thread / kWarp), lane = static_cast<std::size_t>(thread % kWarp);
    sums[0][warp][lane] = first;
    sums[1][warp][lane] = second;
  });
  for (int which = 0; which < 2; ++which) {
    float total = 0;
    for (const OfLanes& warp : sums[static_cast<std::size_t>(which)]) total += over_warp(warp)[0];
    a.partial(sample, split, which)[channel] = total;
  }
}

// The work of a block for a channels-last tensor: one split of the positions of a sample.
template <class X>
void sum_pixels(const DeviceGroupNorm& a, std::int64_t together, std::int64_t sample, std::int64_t split, Order& order) {
  const std::int64_t places = a.channels / together, rows = kThreads / places;
  require(rows > 0, std::to_string(a.channels) + " channels");
  std::array<std::vector<float>, 2> shared;
  for (auto& all : shared) all.assign(static_cast<std::size_t>(kThreads * together), std::numeric_limits<float>::quiet_NaN());
  const X* const x = static_cast<const X*>(a.x) + detail::elements_of(a, sample);
  const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + detail::elements_of(a, sample);
  order.each(kThreads, [&](std::int64_t thread) {
    for (std::int64_t k = 0; k < together; ++k) {
      float first = 0, second = 0;
      const std::int64_t channel = thread % places * together + k, row = thread / places;
      if (row < rows) {
        const detail::Known known = detail::known_of<X>(a, sample, channel);
        for (std::int64_t p = a.positions * split / a.splits + row; p < a.positions * (split + 1) / a.splits; p += rows)
          detail::add(a, known, static_cast<float>(x[p * a.channels + channel]),
                      static_cast<float>(gradient[p * a.channels + channel]), first, second);
      }
      shared[0][static_cast<std::size_t>(thread * together + k)] = first;
      shared[1][static_cast<std::size_t>(thread * together + k)] = second;
    }
  });
  for (std::int64_t i = 0; i < 2 * a.channels; ++i) {  // a barrier comes before this loop
    const std::int64_t which = i / a.channels, channel = i % a.channels;
    float total = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      total += shared[static_cast<std::size_t>(which)][static_cast<std::size_t>(row * a.channels + channel)];
    a.partial(sample, split, static_cast<int>(which))[channel] = total;
  }
}

inline float over_splits(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t channel, int which) {
  OfLanes totals{};
  for (std::int64_t split = 0; split < a.splits; ++split)
    totals[static_cast<std::size_t>(split % kWarp)] += a.partial(sample, split, which)[channel];
  return over_warp(totals)[0];
}

inline detail::ChannelNumbers* numbers_of(const DeviceGroupNorm& a, std::int64_t sample) {
  return reinterpret_cast<detail::ChannelNumbers*>(a.scratch + a.partial_floats()) + sample * a.channels;
}

// The work of a warp: one group of a sample.
template <class X>
void settle(const DeviceGroupNorm& a, std::int64_t index) {
  const std::int64_t sample = index / a.groups, group = index % a.groups, width = a.channels / a.groups;
  const std::int64_t begin = group * width, end = begin + width;
  const auto positions = static_cast<float>(a.positions);
  detail::ChannelNumbers* const numbers = numbers_of(a, sample);
  float &mean = a.statistics[index], &rate = a.statistics[a.samples * a.groups + index];
  if (a.gradient == nullptr) {
    detail::Moments all;
    for (std::int64_t c = begin; c < end; ++c) {
      const float sum = over_splits(a, sample, c, 0), squares = over_splits(a, sample, c, 1);
      const float of_channel = detail::origin_of<X>(a, sample, c) + sum / positions + (a.before == nullptr ? 0.0F : a.before[c]);
      all.join(positions, of_channel, squares - sum * (sum / positions));
      if (a.before != nullptr) a.distances(sample)[c] = of_channel;
    }
    mean = all.mean, rate = all.rate(a.epsilon);
    for (std::int64_t c = begin; c < end; ++c) {
      numbers[c] = detail::numbers_forward(a, c, mean, rate);
      if (a.before != nullptr) a.distances(sample)[c] -= mean;
    }
    return;
  }
  float total = 0, products = 0;
  for (std::int64_t c = begin; c < end; ++c) {
    const float sum = over_splits(a, sample, c, 0), product = over_splits(a, sample, c, 1);
    const float weight = a.weight == nullptr ? 1.0F : a.weight[c];
    total += weight * sum;
    products += weight * product;
    a.sum(sample, 0)[c] = product;
    a.sum(sample, 1)[c] = sum;
  }
  const float elements = positions * static_cast<float>(width);
  for (std::int64_t c = begin; c < end; ++c) {
    numbers[c] = detail::numbers_backward(a, c, mean, rate, total / elements, products / elements);
    if (a.before != nullptr)
      a.sum(sample, 2)[c] =
          detail::gradient_of_before(numbers[c], a.sum(sample, 1)[c], positions, a.distances(sample)[c], rate, total / elements);
  }
}

template <class X>
void apply(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t i) {
  const auto* const x = static_cast<const X*>(a.x) + detail::elements_of(a, sample);
  const auto* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + detail::elements_of(a, sample);
  const detail::ChannelNumbers& n = numbers_of(a, sample)[a.channels_last ? i % a.channels : i / a.positions];
  float y =
      detail::result_of(n, {a.silu, a.slope}, static_cast<float>(x[i]), static_cast<float>(gradient[i]), a.gradient != nullptr);
  if (a.more != nullptr) y += static_cast<float>(static_cast<const X*>(a.more)[detail::elements_of(a, sample) + i]);
  static_cast<X*>(a.out)[detail::elements_of(a, sample) + i] = static_cast<X>(y);
}

inline void group_norm(const DeviceGroupNorm& a, Order order = {}) {
  require(a.samples > 0 && a.samples <= 65535 && a.splits > 0 && a.splits <= 65535, "a launch of that many blocks");
  with_types(a.type, a.type, [&]<class X, class>() {
    const std::int64_t neighbours = a.channels_last ? a.channels : a.positions;
    const bool pieces = neighbours % Piece<X>::kElements == 0 && begins_piece<X>(a.x) && begins_piece<X>(a.gradient) &&
                        begins_piece<X>(a.more) && begins_piece<X>(a.out);
    const std::int64_t together = pieces ? Piece<X>::kElements : 1, blocks = a.samples * (a.channels_last ? 1 : a.channels);
    std::fill_n(a.scratch, a.scratch_floats(), std::numeric_limits<float>::quiet_NaN());
    order.each(blocks * a.splits, [&](std::int64_t block) {
      if (a.channels_last) return sum_pixels<X>(a, together, block % blocks, block / blocks, order);
      sum_plane<X>(a, together, block % blocks, block / blocks, order);
    });
    order.each(a.samples * a.groups, [&](std::int64_t group) { settle<X>(a, group); });
    for (std::int64_t sample = 0; sample < a.samples; ++sample)
      each_of(a.channels * a.positions, order, [&](std::int64_t i) { apply<X>(a, sample, i); });
  });
}

}  // namespace millrace::kernels::launched
