// For tests: the launches of device/cuda/decoder.cu on the CPU, as test_launch.h has those of the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "millrace/kernels/decoder_lane.h"
#include "millrace/kernels/detail/test_launch.h"

namespace millrace::kernels::launched {

template <class X, class Y>
void rms_row(const DeviceRms& a, std::int64_t row) {
  const auto over_lanes = [&](const auto& part) {
    OfLanes parts{};
    for (std::size_t lane = 0; lane < kWarp; ++lane) parts[lane] = part(detail::RmsLane<X, Y>(a, row, static_cast<int>(lane)));
    return over_warp(parts)[0];
  };
  const auto each_lane = [&](const auto& body) {
    for (int lane = 0; lane < kWarp; ++lane) body(detail::RmsLane<X, Y>(a, row, lane));
  };
  const auto width = static_cast<float>(a.width);
  if (a.y_gradient == nullptr) {
    const float rate = detail::rms_rate(over_lanes([](const auto& lane) { return lane.squares(); }), width, a.epsilon);
    a.rates[row] = rate;
    return each_lane([&](const auto& lane) { lane.write(rate); });
  }
  const float rate = a.rates[row], product = over_lanes([&](const auto& lane) { return lane.products(rate); }) / width;
  each_lane([&](const auto& lane) { lane.write_gradient(rate, product); });
}

inline void rms_rows(const DeviceRms& a, Order order = {}) {
  require(a.width % 4 == 0, "rows that are no whole pieces");
  for (const void* data : {a.x, a.branch, static_cast<const void*>(a.sum), a.y_gradient, a.sum_gradient})
    require_aligned(data, 8, "rows of an RMS norm");
  require_aligned(a.weight, kPieceBytes, "the weight of an RMS norm");
  with_types(a.x_type, a.y_type, [&]<class X, class Y>() { order.each(a.rows, [&](std::int64_t row) { rms_row<X, Y>(a, row); }); });
}

inline void swiglu(const DeviceSwiglu& a, Order order = {}) {
  require(a.width % 4 == 0, "rows that are no whole pieces");
  for (const void* data : {a.x, a.gradient, static_cast<const void*>(a.out)}) require_aligned(data, 8, "rows of SwiGLU");
  with_types(a.type, a.type, [&]<class X, class>() {
    const std::int64_t fours = a.width / 4;
    order.each(a.rows * fours, [&](std::int64_t i) { detail::swiglu_four<X>(a, i / fours, i % fours); });
  });
}

inline void turn(const DeviceTurn& a, Order order = {}) {
  require(a.half % 4 == 0 && a.row_stride % 4 == 0 && a.batch_stride % 4 == 0, "heads that are no whole pieces");
  for (const void* data : {a.x, static_cast<const void*>(a.out)}) require_aligned(data, 8, "heads");
  with_types(a.type, a.type, [&]<class X, class>() {
    const std::int64_t fours = a.half / 4;
    order.each(a.batch * a.rows * a.heads * fours, [&](std::int64_t i) {
      const std::int64_t head = i / fours, row = head / a.heads;
      detail::turn_four<X>(a, row / a.rows, row % a.rows, head % a.heads, i % fours);
    });
  });
}

}  // namespace millrace::kernels::launched
