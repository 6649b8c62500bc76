// The arithmetic of a group norm with its activation, for a device's threads. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

// x is (samples, channels, positions), or (samples, positions, channels) with channels_last. The norm is that of x + before.
struct DeviceGroupNorm {
  const void* x;
  const void* gradient;        // gradient of the result; null in the forward pass
  const void* more;            // backward: added to the gradient of x; may be null
  void* out;                   // forward: the result; backward: the gradient of x
  const float* before;         // (channels); may be null
  const float *weight, *bias;  // (channels); may be null
  float* statistics;           // statistics_floats() floats; written in the forward pass, read in the backward pass
  float* scratch;              // scratch memory of scratch_floats() floats
  float* sums;                 // backward: sums_floats() floats, each sample's part of the gradients of weight, bias and `before`
  detail::Type type;
  std::int64_t samples, channels, groups, positions, splits;
  bool channels_last;
  bool silu;    // SiLU; otherwise a leaky ReLU
  float slope;  // slope of the leaky ReLU below zero
  float epsilon;

  // `statistics` holds mean and rate of each sample and group and, for `before`, the distance of each channel's mean from its
  // group's.
  [[nodiscard]] C10_HOST_DEVICE std::int64_t statistics_floats() const {
    return samples * (2 * groups + (before == nullptr ? 0 : channels));
  }
  [[nodiscard]] C10_HOST_DEVICE float* distances(std::int64_t sample) const {
    return statistics + 2 * samples * groups + sample * channels;
  }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t sums_floats() const { return (before == nullptr ? 2 : 3) * samples * channels; }
  [[nodiscard]] C10_HOST_DEVICE float* sum(std::int64_t sample, int which) const {
    return sums + (which * samples + sample) * channels;
  }
  // `scratch` holds two sums for each sample, split and channel, and then four numbers for each sample and channel.
  [[nodiscard]] C10_HOST_DEVICE std::int64_t partial_floats() const { return 2 * samples * splits * channels; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t scratch_floats() const { return partial_floats() + 4 * samples * channels; }
  [[nodiscard]] C10_HOST_DEVICE float* partial(std::int64_t sample, std::int64_t split, int which) const {
    return scratch + ((sample * splits + split) * 2 + which) * channels;
  }
};

namespace detail {

// A channel's numbers for the second pass. Forward: out = act(x * scale + shift). Backward: dx = scale * u + factor * x + offset,
// where u is the gradient before act.
struct ChannelNumbers {
  float scale = 0, shift = 0, factor = 0, offset = 0;
};

struct GroupNormAct {
  bool silu;
  float slope;
  [[nodiscard]] C10_HOST_DEVICE float value(float h) const {
    if (silu) return h / (1.0F + ::expf(-h));
    return h < 0.0F ? h * slope : h;
  }
  [[nodiscard]] C10_HOST_DEVICE float gradient(float upstream, float h) const {
    if (!silu) return h < 0.0F ? upstream * slope : upstream;
    const float s = 1.0F / (1.0F + ::expf(-h));
    return upstream * s * (1.0F + h * (1.0F - s));
  }
};

// The count and the mean of some numbers, and the sum of their squared distances from the mean. join() adds the moments of
// further numbers.
struct Moments {
  float count = 0, mean = 0, squares = 0;
  C10_HOST_DEVICE void join(float more, float its_mean, float its_squares) {
    if (more == 0.0F) return;
    const float all = count + more, distance = its_mean - mean;
    squares += its_squares + distance * distance * (count * (more / all));
    mean += distance * (more / all);
    count = all;
  }
  [[nodiscard]] C10_HOST_DEVICE float rate(float epsilon) const {
    return 1.0F / ::sqrtf(::fmaxf(squares, 0.0F) / count + epsilon);
  }
};

// Index of a sample's first element.
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t elements_of(const DeviceGroupNorm& a, std::int64_t sample) {
  return sample * a.channels * a.positions;
}

// Returns the first element of a channel. Threads subtract it from the channel's elements before they add squares, so that the
// sums lose no digits if the mean is large.
template <class X>
[[nodiscard]] C10_HOST_DEVICE float origin_of(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t channel) {
  const X* const x = static_cast<const X*>(a.x) + elements_of(a, sample);
  return static_cast<float>(x[a.channels_last ? channel : channel * a.positions]);
}

// The mean of a group minus the channel's `before`. (The norm is that of x + before, but x lacks `before`.)
[[nodiscard]] C10_HOST_DEVICE inline float mean_in_x(const DeviceGroupNorm& a, std::int64_t channel, float mean) {
  return a.before == nullptr ? mean : mean - a.before[channel];
}

// The values of a channel that add() needs. n is the normed value, h the input of act.
struct Known {
  float origin = 0;            // for the forward pass
  float scale = 0, shift = 0;  // for the backward pass: h = x * scale + shift
  float rate = 0, centre = 0;  // for the backward pass: n = x * rate + centre
};

template <class X>
[[nodiscard]] C10_HOST_DEVICE Known known_of(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t channel) {
  Known known;
  if (a.gradient == nullptr) {
    known.origin = origin_of<X>(a, sample, channel);
    return known;
  }
  const std::int64_t group = sample * a.groups + channel / (a.channels / a.groups);
  const float mean = mean_in_x(a, channel, a.statistics[group]);
  known.rate = a.statistics[a.samples * a.groups + group];
  known.centre = -mean * known.rate;
  known.scale = known.rate * (a.weight == nullptr ? 1.0F : a.weight[channel]);
  known.shift = (a.bias == nullptr ? 0.0F : a.bias[channel]) - mean * known.scale;
  return known;
}

// Adds to two sums. Forward: the distance from the origin and its square. Backward: the gradient before act and its product with
// n.
C10_HOST_DEVICE inline void add(const DeviceGroupNorm& a, const Known& known, float x, float gradient, float& first,
                                float& second) {
  if (a.gradient == nullptr) {
    const float distance = x - known.origin;
    first += distance;
    second += distance * distance;
    return;
  }
  const float u = GroupNormAct{a.silu, a.slope}.gradient(gradient, x * known.scale + known.shift);
  first += u;
  second += u * (x * known.rate + known.centre);
}

[[nodiscard]] C10_HOST_DEVICE inline ChannelNumbers numbers_forward(const DeviceGroupNorm& a, std::int64_t channel, float mean,
                                                                    float rate) {
  const float scale = rate * (a.weight == nullptr ? 1.0F : a.weight[channel]);
  return {scale, (a.bias == nullptr ? 0.0F : a.bias[channel]) - mean_in_x(a, channel, mean) * scale, 0.0F, 0.0F};
}

// `gradient` is the group's mean of the gradient of n, and `product` is the group's mean of that gradient times n.
[[nodiscard]] C10_HOST_DEVICE inline ChannelNumbers numbers_backward(const DeviceGroupNorm& a, std::int64_t channel, float mean,
                                                                     float rate, float gradient, float product) {
  ChannelNumbers n = numbers_forward(a, channel, mean, rate);
  n.factor = -rate * rate * product;
  n.offset = -rate * gradient - n.factor * mean_in_x(a, channel, mean);
  return n;
}

// Returns the gradient of `before` for a channel: the sum of the gradient of x, without `more`, over the channel's positions.
// `sum` is the channel's sum of u; `gradient` is the group's mean as in numbers_backward().
[[nodiscard]] C10_HOST_DEVICE inline float gradient_of_before(const ChannelNumbers& n, float sum, float positions, float distance,
                                                              float rate, float gradient) {
  return n.scale * sum + positions * (n.factor * distance - rate * gradient);
}

// Returns an element of the result; in the backward pass, of the gradient of x.
[[nodiscard]] C10_HOST_DEVICE inline float result_of(const ChannelNumbers& n, const GroupNormAct& act, float x, float gradient,
                                                     bool backward) {
  const float h = x * n.scale + n.shift;
  return backward ? n.scale * act.gradient(gradient, h) + n.factor * x + n.offset : act.value(h);
}

}  // namespace detail
}  // namespace millrace::kernels
