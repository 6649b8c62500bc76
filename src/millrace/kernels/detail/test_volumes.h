// For tests: the launches of device/cuda/circular_pad.cu, group_norm.cu and rms_norm.cu on the CPU, with the same arithmetic. Sums
// of a channel or a group are added in order, where a GPU's threads share them.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/kernels/device_table.h"
#include "millrace/kernels/device_types.h"
#include "millrace/kernels/rms_norm_lane.h"

namespace millrace::kernels::launched {

inline void circular_pad(const CircularPad& args) {
  const detail::PaddedVolume& v = args.volume;
  const std::int64_t edge = args.backward ? 0 : 2;
  const std::int64_t depth = v.depth + edge, height = v.height + edge, width = v.width + edge;
  const std::int64_t threads = v.samples * v.planes * depth * height * width * v.pixel;
  with_types(args.type, args.type, [&]<class X, class>() {
    const auto* const in = static_cast<const X*>(args.in);
    auto* const out = static_cast<X*>(args.out);
    for (std::int64_t i = 0; i < threads; ++i) {
      const detail::PixelPiece at = detail::piece_of(i, v.pixel, 1, depth, height, width);
      if (!args.backward) {
        const std::int64_t from = plain_place(v, at.plane, detail::wrapped(at.d - 1, v.depth), detail::wrapped(at.h - 1, v.height),
                                              detail::wrapped(at.w - 1, v.width));
        out[padded_place(v, at.plane, at.d, at.h, at.w) + at.element] = in[from + at.element];
        continue;
      }
      float sum = 0;
      for (int d = 0; d < detail::times_shown(at.d, v.depth); ++d)
        for (int h = 0; h < detail::times_shown(at.h, v.height); ++h)
          for (int w = 0; w < detail::times_shown(at.w, v.width); ++w)
            sum += static_cast<float>(in[padded_place(v, at.plane, detail::shown_at(at.d, v.depth, d),
                                                      detail::shown_at(at.h, v.height, h), detail::shown_at(at.w, v.width, w)) +
                                         at.element]);
      out[plain_place(v, at.plane, at.d, at.h, at.w) + at.element] = static_cast<X>(sum);
    }
  });
}

// The element of a position of a channel, in either layout.
template <class Args>
std::int64_t element_of(const Args& a, std::int64_t sample, std::int64_t channel, std::int64_t position) {
  const std::int64_t begin = sample * a.channels * a.positions;
  return begin + (a.channels_last ? position * a.channels + channel : channel * a.positions + position);
}

template <class X>
void group_norm_of(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t group) {
  const auto *x = static_cast<const X*>(a.x), *gradient = static_cast<const X*>(a.gradient);
  auto* const out = static_cast<X*>(a.out);
  const std::int64_t width = a.channels / a.groups, index = sample * a.groups + group;
  const auto positions = static_cast<float>(a.positions);
  const auto value = [&](std::int64_t c, std::int64_t p) { return static_cast<float>(x[element_of(a, sample, c, p)]); };
  const detail::GroupNormAct act{a.silu, a.slope};
  if (gradient == nullptr) {
    detail::Moments all;
    for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
      const float origin = value(c, 0);
      float sum = 0, squares = 0;
      for (std::int64_t p = 0; p < a.positions; ++p) {
        const float distance = value(c, p) - origin;
        sum += distance;
        squares += distance * distance;
      }
      all.join(positions, origin + sum / positions, squares - sum * (sum / positions));
    }
    a.statistics[index] = all.mean;
    a.statistics[a.samples * a.groups + index] = 1.0F / ::sqrtf(::fmaxf(all.squares, 0.0F) / all.count + a.epsilon);
  }
  const float mean = a.statistics[index], rate = a.statistics[a.samples * a.groups + index];
  const auto weight = [&](std::int64_t c) { return a.weight == nullptr ? 1.0F : a.weight[c]; };
  const auto h = [&](std::int64_t c, std::int64_t p) {
    const float scale = rate * weight(c);
    return value(c, p) * scale + ((a.bias == nullptr ? 0.0F : a.bias[c]) - mean * scale);
  };
  const auto u = [&](std::int64_t c, std::int64_t p) {
    return act.gradient(static_cast<float>(gradient[element_of(a, sample, c, p)]), h(c, p));
  };
  float total = 0, products = 0;
  for (std::int64_t c = group * width; gradient != nullptr && c < (group + 1) * width; ++c) {
    float sum = 0, product = 0;
    for (std::int64_t p = 0; p < a.positions; ++p) {
      sum += u(c, p);
      product += u(c, p) * (value(c, p) * rate - mean * rate);
    }
    a.sums[sample * a.channels + c] = product;
    a.sums[(a.samples + sample) * a.channels + c] = sum;
    total += weight(c) * sum;
    products += weight(c) * product;
  }
  const float elements = positions * static_cast<float>(width);
  const float factor = -rate * rate * (products / elements), offset = -rate * (total / elements) - factor * mean;
  for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
    for (std::int64_t p = 0; p < a.positions; ++p) {
      const float y = gradient == nullptr ? act.value(h(c, p)) : rate * weight(c) * u(c, p) + factor * value(c, p) + offset;
      out[element_of(a, sample, c, p)] = static_cast<X>(y);
    }
  }
}

inline void group_norm(const DeviceGroupNorm& a) {
  with_types(a.type, a.type, [&]<class X, class>() {
    for (std::int64_t sample = 0; sample < a.samples; ++sample)
      for (std::int64_t group = 0; group < a.groups; ++group) group_norm_of<X>(a, sample, group);
  });
}

inline void rms_norm(const detail::RmsNorm& a) {
  with_types(a.type, a.type, [&]<class X, class>() {
    const auto *x = static_cast<const X*>(a.x), *gradient = static_cast<const X*>(a.gradient);
    auto* const out = static_cast<X*>(a.out);
    for (std::int64_t i = 0; i < a.samples * a.positions; ++i) {
      const auto at = [&](std::int64_t c) { return element_of(a, i / a.positions, c, i % a.positions); };
      float total = 0;
      const auto of_h = [&](std::int64_t c, float h) { return detail::silu_gradient(static_cast<float>(gradient[at(c)]), h); };
      for (std::int64_t c = 0; c < a.channels; ++c) {
        const auto value = static_cast<float>(x[at(c)]);
        total += gradient == nullptr ? value * value : of_h(c, value * a.rates[i]) * (value * a.rates[i]);
      }
      const auto count = static_cast<float>(a.channels);
      if (gradient == nullptr) a.rates[i] = detail::rms_rate(total, count, a.epsilon);
      for (std::int64_t c = 0; c < a.channels; ++c) {
        const float h = static_cast<float>(x[at(c)]) * a.rates[i];
        const float y = gradient == nullptr ? detail::silu_of(h) : detail::rms_gradient(of_h(c, h), h, a.rates[i], total / count);
        out[at(c)] = static_cast<X>(y);
      }
    }
  });
}

}  // namespace millrace::kernels::launched
