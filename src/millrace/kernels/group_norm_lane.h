// The arithmetic of a group norm with its activation, for a device's threads. g++ and nvcc both compile it.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

// x (samples, channels, positions), or with channels_last (samples, positions, channels).
struct DeviceGroupNorm {
  const void* x;
  const void* gradient;        // of the result; null in the forward pass
  void* out;                   // the result; backward: the gradient of x
  const float *weight, *bias;  // (channels); may be null
  float* statistics;           // (2, samples, groups): mean, rate; written forward, read backward
  float* scratch;              // scratch_floats() of them
  float* sums;                 // backward: (2, samples, channels), the gradients of weight and bias in each sample
  detail::Type type;
  std::int64_t samples, channels, groups, positions, splits;
  bool channels_last;
  bool silu;    // otherwise a leaky ReLU
  float slope;  // of the leaky ReLU, below zero
  float epsilon;

  // Two sums for each sample, split and channel; then four numbers for each sample and channel.
  [[nodiscard]] C10_HOST_DEVICE std::int64_t partial_floats() const { return 2 * samples * splits * channels; }
  [[nodiscard]] C10_HOST_DEVICE std::int64_t scratch_floats() const { return partial_floats() + 4 * samples * channels; }
  [[nodiscard]] C10_HOST_DEVICE float* partial(std::int64_t sample, std::int64_t split, int which) const {
    return scratch + ((sample * splits + split) * 2 + which) * channels;
  }
};

namespace detail {

// What the second pass needs of a channel: forward out = act(x * scale + shift); backward
// dx = scale * u + factor * x + offset, u the gradient before act.
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

// Mean and squared distances from it, of numbers that come in parts.
struct Moments {
  float count = 0, mean = 0, squares = 0;
  C10_HOST_DEVICE void join(float more, float its_mean, float its_squares) {
    if (more == 0.0F) return;
    const float all = count + more, distance = its_mean - mean;
    squares += its_squares + distance * distance * (count * (more / all));
    mean += distance * (more / all);
    count = all;
  }
};

}  // namespace detail
}  // namespace millrace::kernels
