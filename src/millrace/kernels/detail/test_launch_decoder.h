// For tests: runs the launches of device/cuda/decoder.cu on the CPU. test_launch.h has the launches of other files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/kernels/decoder_lane.h"
#include "millrace/kernels/detail/test_launch.h"

namespace millrace::kernels::launched {

template <class T>
void require_fours(const void* data, const std::string& name) {
  require_aligned(data, sizeof(detail::FourOf<T>), name);
}

// Returns the sum of part(lane) over all lanes of a warp, added in the order of the warp's shuffles.
template <class Part>
float sum_of_lanes(const Part& part) {
  OfLanes values{};
  for (std::size_t lane = 0; lane < kWarp; ++lane) values[lane] = part(static_cast<int>(lane));
  return over_warp(values)[0];
}

inline void rms_rows(const DeviceRms& a, Order order = {}) {
  require(a.rows > 0 && a.width % 4 == 0, std::to_string(a.rows) + " rows of " + std::to_string(a.width));
  require_fours<float>(a.weight, "a weight");
  with_types(a.x_type, a.y_type, [&]<class X, class Y>() {
    using Lane = detail::RmsLane<X, Y>;
    for (const void* data : {a.x, static_cast<const void*>(a.sum), a.sum_gradient}) require_fours<X>(data, "a row");
    for (const void* data : {a.branch, static_cast<const void*>(a.y), a.y_gradient}) require_fours<Y>(data, "a row");
    order.each(a.rows, [&](std::int64_t row) {
      const auto width = static_cast<float>(a.width);
      if (a.y_gradient == nullptr) {
        const float squares = sum_of_lanes([&](int lane) { return Lane(a, row, lane).squares(); });
        const float rate = detail::rms_rate(squares, width, a.epsilon);
        a.rates[row] = rate;
        for (int lane = 0; lane < static_cast<int>(kWarp); ++lane) Lane(a, row, lane).write(rate);
        return;
      }
      const float rate = a.rates[row];
      const float product = sum_of_lanes([&](int lane) { return Lane(a, row, lane).products(rate); }) / width;
      for (int lane = 0; lane < static_cast<int>(kWarp); ++lane) Lane(a, row, lane).write_gradient(rate, product);
    });
  });
}

inline void swiglu(const DeviceSwiglu& a, Order order = {}) {
  require(a.width % 4 == 0, std::to_string(a.width) + " wide");
  with_types(a.type, a.type, [&]<class X, class>() {
    for (const void* data : {a.x, a.gradient, static_cast<const void*>(a.out)}) require_fours<X>(data, "a row");
    const std::int64_t fours = a.width / 4;
    each_thread(a.rows * fours, order, [&](std::int64_t thread, std::int64_t step) {
      for (std::int64_t i = thread; i < a.rows * fours; i += step) detail::swiglu_four<X>(a, i / fours, i % fours);
    });
  });
}

inline void turn(const DeviceTurn& a, Order order = {}) {
  for (const std::int64_t size : {a.half, a.batch_stride, a.row_stride, a.out_batch_stride, a.out_row_stride})
    require(size % 4 == 0, "heads that are no whole pieces");
  for (const float* data : {a.cos, a.sin}) require_fours<float>(data, "an angle");
  with_types(a.type, a.type, [&]<class X, class>() {
    for (const void* data : {a.x, static_cast<const void*>(a.out)}) require_fours<X>(data, "a head");
    const std::int64_t fours = a.half / 4, all = a.batch * a.rows * a.heads * fours;
    each_thread(all, order, [&](std::int64_t thread, std::int64_t step) {
      for (std::int64_t i = thread; i < all; i += step) {
        const std::int64_t head = i / fours, row = head / a.heads;
        detail::turn_four<X>(a, row / a.rows, row % a.rows, head % a.heads, i % fours);
      }
    });
  });
}

}  // namespace millrace::kernels::launched
