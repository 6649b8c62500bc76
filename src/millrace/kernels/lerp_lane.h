// A weighted step of many tensors toward others, for a device's threads. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace millrace::kernels::detail {

// The tensors of one launch: average += weight * (value - average). The struct is an argument of the launch, so it has a fixed
// size.
struct Lerp {
  struct Pair {
    float* average;
    const float* value;
    std::int64_t count;
  };
  static constexpr int kMost = 64;  // the most pairs of a launch
  std::array<Pair, kMost> pairs;
  int count;            // number of pairs that are set
  const float* weight;  // in the device's memory
};

// A launch has up to kLerpBlocks blocks along its first dimension, and one pair of tensors for each index of its second
// dimension. If a tensor has more elements than these blocks have threads, each thread loops over several elements.
inline constexpr std::int64_t kLerpThreads = 256, kLerpBlocks = 512;

// The formula of at::lerp, which is exact at weight 0 and at weight 1.
[[nodiscard]] C10_HOST_DEVICE inline float lerp_of(float from, float to, float weight) {
  return ::fabsf(weight) < 0.5F ? from + weight * (to - from) : to - (to - from) * (1.0F - weight);
}

}  // namespace millrace::kernels::detail
