// The arithmetic of a blurred soft pooling (kernels/soft_pool.h), for a device's threads. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

inline constexpr float kLargestExponent = 30.0F;    // a larger number gets the same weight as this number
inline constexpr float kSumOfWeightsFloor = 4e-6F;  // added to the sum of four weights, which is 1e-6 added to their mean

// Element (h, w) of a plane is at x[h * row + w * pixel].
struct PoolPlane {
  std::int64_t height, width, row, pixel;
};

[[nodiscard]] C10_HOST_DEVICE inline float blur_tap(int distance) { return distance == 0 ? 0.5F : 0.25F; }

// `kSide` x `kSide` pixels of the blurred plane, the first of which is (top, left), and their weights. Pixels outside of the
// plane have the weight 0.
template <int kSide>
struct Blurred {
  float value[kSide][kSide], weight[kSide][kSide];

  template <class X>
  C10_HOST_DEVICE Blurred(const X* x, const PoolPlane& plane, std::int64_t top, std::int64_t left) {
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) value[i][j] = 0;
    for (int r = 0; r < kSide + 2; ++r) {
      const std::int64_t h = top + r - 1;
      float line[kSide + 2];
      for (int c = 0; c < kSide + 2; ++c) {
        const std::int64_t w = left + c - 1;
        const bool inside = h >= 0 && h < plane.height && w >= 0 && w < plane.width;
        line[c] = inside ? static_cast<float>(x[h * plane.row + w * plane.pixel]) : 0.0F;
      }
      for (int j = 0; j < kSide; ++j) {
        const float blurred = blur_tap(1) * (line[j] + line[j + 2]) + blur_tap(0) * line[j + 1];
        for (int i = 0; i < kSide; ++i)
          if (r >= i && r <= i + 2) value[i][j] += blur_tap(r - i - 1) * blurred;
      }
    }
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) {
        const std::int64_t h = top + i, w = left + j;
        const bool inside = h >= 0 && h < plane.height && w >= 0 && w < plane.width;
        weight[i][j] = inside ? ::expf(::fminf(value[i][j], kLargestExponent)) : 0.0F;
      }
  }
};

// Returns the result of the window of 2 x 2 pixels that begins at (h, w).
template <class X>
[[nodiscard]] C10_HOST_DEVICE inline float soft_pooled(const X* x, const PoolPlane& plane, std::int64_t h, std::int64_t w) {
  const Blurred<2> at(x, plane, h, w);
  float sum = 0, weights = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) sum += at.value[i][j] * at.weight[i][j], weights += at.weight[i][j];
  return sum / (weights + kSumOfWeightsFloor);
}

// The gradient of x at (h, w). `gradient`: the gradient of the results, a plane of out_height x out_width.
template <class X>
[[nodiscard]] C10_HOST_DEVICE inline float soft_pool_gradient(const X* x, const PoolPlane& plane, const X* gradient,
                                                              const PoolPlane& results, std::int64_t stride, std::int64_t h,
                                                              std::int64_t w) {
  const Blurred<5> at(x, plane, h - 2, w - 2);
  float total = 0;
  // The blur carries (h, w) to all pixels that are at most one row and one column away. The windows of 2 x 2 pixels that contain
  // such a pixel begin in the rows h - 2 to h + 1 and in the columns w - 2 to w + 1.
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const std::int64_t top = h + i - 2, left = w + j - 2;
      if (top < 0 || left < 0 || top % stride != 0 || left % stride != 0) continue;
      if (top / stride >= results.height || left / stride >= results.width) continue;
      float sum = 0, weights = kSumOfWeightsFloor;
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) sum += at.value[i + r][j + c] * at.weight[i + r][j + c], weights += at.weight[i + r][j + c];
      const float result = sum / weights;
      const float upstream = static_cast<float>(gradient[top / stride * results.row + left / stride * results.pixel]) / weights;
      for (int r = 0; r < 2; ++r) {
        for (int c = 0; c < 2; ++c) {
          const int down = i + r - 2, right = j + c - 2;  // distance from (h, w) to the pixel
          if (down < -1 || down > 1 || right < -1 || right > 1) continue;
          const float value = at.value[i + r][j + c];
          const float slope = value <= kLargestExponent ? value - result + 1.0F : 1.0F;
          total += blur_tap(down) * blur_tap(right) * upstream * at.weight[i + r][j + c] * slope;
        }
      }
    }
  }
  return total;
}

// The position of element i, in the plane of its channel, for a tensor with `pixel` channels side by side. `pixel` is 1 if the
// tensor is contiguous.
struct PoolPlace {
  std::int64_t plane, channel, h, w;
};
[[nodiscard]] C10_HOST_DEVICE inline PoolPlace pool_place(std::int64_t i, std::int64_t pixel, std::int64_t height,
                                                          std::int64_t width) {
  // 32-bit divisions take a fraction of the time of 64-bit ones. A kernel gets fewer than 2^31 elements.
  auto rest = static_cast<std::uint32_t>(i);
  const auto next = [&rest](std::int64_t size) {
    const auto by = static_cast<std::uint32_t>(size), digit = rest % by;
    rest /= by;
    return static_cast<std::int64_t>(digit);
  };
  PoolPlace place{};
  place.channel = next(pixel);
  place.w = next(width);
  place.h = next(height);
  place.plane = static_cast<std::int64_t>(rest);
  return place;
}

[[nodiscard]] C10_HOST_DEVICE inline std::int64_t pool_pixel(const SoftPool& a) { return a.channels_last ? a.channels : 1; }
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t pool_results(const SoftPool& a) {
  return a.planes * a.out_height * a.out_width;
}
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t pool_elements(const SoftPool& a) { return a.planes * a.height * a.width; }
// The threads of a launch: one for each element that it writes.
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t pool_threads(const SoftPool& a) {
  return a.gradient == nullptr ? pool_results(a) : pool_elements(a);
}

// The work of thread i, forward or backward.
template <class X>
C10_HOST_DEVICE inline void soft_pool_element(const SoftPool& a, std::int64_t i) {
  const std::int64_t pixel = pool_pixel(a), row = a.width * pixel, out_row = a.out_width * pixel;
  const PoolPlane plane{a.height, a.width, row, pixel}, results{a.out_height, a.out_width, out_row, pixel};
  const bool backward = a.gradient != nullptr;
  const PoolPlace at = pool_place(i, pixel, backward ? a.height : a.out_height, backward ? a.width : a.out_width);
  const X* const x = static_cast<const X*>(a.x) + at.plane * a.height * row + at.channel;
  float result = 0;
  if (backward) {
    const X* const gradient = static_cast<const X*>(a.gradient) + at.plane * a.out_height * out_row + at.channel;
    result = soft_pool_gradient(x, plane, gradient, results, a.stride, at.h, at.w);
  } else {
    result = soft_pooled(x, plane, at.h * a.stride, at.w * a.stride);
  }
  static_cast<X*>(a.out)[i] = static_cast<X>(result);
}

}  // namespace millrace::kernels::detail
