#include "millrace/device/cuda/decoder.h"

#include <algorithm>

#include "millrace/device/cuda/launch.h"

namespace millrace::device {
namespace {

using kernels::DeviceRms;
using kernels::DeviceSwiglu;
using kernels::DeviceTurn;
using kernels::detail::RmsLane;

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // if there are more elements, threads loop

// One warp per row.
template <class X, class Y>
__global__ void __launch_bounds__(kThreads, 2) rms_rows(DeviceRms a) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const RmsLane<X, Y> lane(a, row, static_cast<int>(threadIdx.x % 32));
  const auto width = static_cast<float>(a.width);
  if (a.y_gradient == nullptr) {
    const float rate = kernels::detail::rms_rate(over_warp(lane.squares()), width, a.epsilon);
    if (threadIdx.x % 32 == 0) a.rates[row] = rate;
    return lane.write(rate);
  }
  const float rate = a.rates[row];
  lane.write_gradient(rate, over_warp(lane.products(rate)) / width);
}

template <class X>
__global__ void __launch_bounds__(kThreads) swiglu(DeviceSwiglu a) {
  const std::int64_t fours = a.width / 4, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * fours; i += step)
    kernels::detail::swiglu_four<X>(a, i / fours, i % fours);
}

template <class X>
__global__ void __launch_bounds__(kThreads) turn(DeviceTurn a) {
  const std::int64_t fours = a.half / 4, all = a.batch * a.rows * a.heads * fours, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t head = i / fours, row = head / a.heads;
    kernels::detail::turn_four<X>(a, row / a.rows, row % a.rows, head % a.heads, i % fours);
  }
}

unsigned blocks_of(std::int64_t threads) {
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

cudaError_t launch_rms_rows(const DeviceRms& a, cudaStream_t stream) {
  return with_types(a.x_type, a.y_type, [&]<class X, class Y>() {
    rms_rows<X, Y><<<static_cast<unsigned>((a.rows + kThreads / 32 - 1) / (kThreads / 32)), kThreads, 0, stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t launch_swiglu(const DeviceSwiglu& a, cudaStream_t stream) {
  return with_types(a.type, a.type, [&]<class X, class>() {
    swiglu<X><<<blocks_of(a.rows * a.width / 4), kThreads, 0, stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t launch_turn(const DeviceTurn& a, cudaStream_t stream) {
  return with_types(a.type, a.type, [&]<class X, class>() {
    turn<X><<<blocks_of(a.batch * a.rows * a.heads * a.half / 4), kThreads, 0, stream>>>(a);
    return cudaGetLastError();
  });
}

}  // namespace millrace::device
