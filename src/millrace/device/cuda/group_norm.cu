#include "millrace/device/cuda/group_norm.h"

#include <algorithm>

#include "millrace/device/cuda/launch.h"

namespace millrace::device {
namespace {

using kernels::DeviceGroupNorm;
using kernels::detail::add;
using kernels::detail::ChannelNumbers;
using kernels::detail::elements_of;
using kernels::detail::GroupNormAct;
using kernels::detail::Known;
using kernels::detail::known_of;
using kernels::detail::Moments;
using kernels::detail::origin_of;
using kernels::detail::result_of;

constexpr int kThreads = 256;

// For contiguous tensors. One block per channel and split. E is the type that a thread reads at once: an element, or several
// neighbouring elements.
template <class X, class E>
__global__ void __launch_bounds__(kThreads) sum_planes(DeviceGroupNorm a) {
  constexpr int kElements = sizeof(E) / sizeof(X);
  __shared__ float of_warps[2][kThreads / 32];
  const std::int64_t sample = blockIdx.x / a.channels, channel = blockIdx.x % a.channels, split = blockIdx.y;
  const std::int64_t place = (sample * a.channels + channel) * a.positions, pieces = a.positions / kElements;
  const E* const x = reinterpret_cast<const E*>(static_cast<const X*>(a.x) + place);
  const E* const gradient = a.gradient == nullptr ? x : reinterpret_cast<const E*>(static_cast<const X*>(a.gradient) + place);
  const Known known = known_of<X>(a, sample, channel);
  float first = 0, second = 0;
  const std::int64_t end = pieces * (split + 1) / a.splits;
  for (std::int64_t i = pieces * split / a.splits + threadIdx.x; i < end; i += kThreads) {
    const E here = x[i], upstream = gradient[i];
#pragma unroll
    for (int k = 0; k < kElements; ++k)
      add(a, known, static_cast<float>(reinterpret_cast<const X*>(&here)[k]),
          static_cast<float>(reinterpret_cast<const X*>(&upstream)[k]), first, second);
  }
  first = over_warp(first);
  second = over_warp(second);
  if (threadIdx.x % 32 == 0) of_warps[0][threadIdx.x / 32] = first, of_warps[1][threadIdx.x / 32] = second;
  __syncthreads();
  if (threadIdx.x >= 2) return;
  float total = 0;
  for (const float part : of_warps[threadIdx.x]) total += part;
  a.partial(sample, split, static_cast<int>(threadIdx.x))[channel] = total;
}

// For channels-last tensors. One block per sample and split. A thread adds up kElements neighbouring channels in some of the
// positions.
template <class X, class E>
__global__ void __launch_bounds__(kThreads) sum_pixels(DeviceGroupNorm a) {
  constexpr int kElements = sizeof(E) / sizeof(X);
  __shared__ float shared[2][kThreads * kElements];
  const int places = static_cast<int>(a.channels) / kElements, rows = kThreads / places;
  const int row = static_cast<int>(threadIdx.x) / places, place = static_cast<int>(threadIdx.x) % places;
  const std::int64_t sample = blockIdx.x, split = blockIdx.y;
  float first[kElements] = {}, second[kElements] = {};
  if (row < rows) {
    Known known[kElements];
#pragma unroll
    for (int k = 0; k < kElements; ++k) known[k] = known_of<X>(a, sample, place * kElements + k);
    const X* const x = static_cast<const X*>(a.x) + elements_of(a, sample);
    const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + elements_of(a, sample);
    const std::int64_t end = a.positions * (split + 1) / a.splits;
    for (std::int64_t p = a.positions * split / a.splits + row; p < end; p += rows) {
      const E here = reinterpret_cast<const E*>(x + p * a.channels)[place];
      const E upstream = reinterpret_cast<const E*>(gradient + p * a.channels)[place];
#pragma unroll
      for (int k = 0; k < kElements; ++k)
        add(a, known[k], static_cast<float>(reinterpret_cast<const X*>(&here)[k]),
            static_cast<float>(reinterpret_cast<const X*>(&upstream)[k]), first[k], second[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    shared[0][threadIdx.x * kElements + k] = first[k];
    shared[1][threadIdx.x * kElements + k] = second[k];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * static_cast<int>(a.channels); i += kThreads) {
    const int which = i / static_cast<int>(a.channels), channel = i % static_cast<int>(a.channels);
    float total = 0;
    for (int other = 0; other < rows; ++other) total += shared[which][other * static_cast<int>(a.channels) + channel];
    a.partial(sample, split, which)[channel] = total;
  }
}

__device__ float over_splits(const DeviceGroupNorm& a, std::int64_t sample, std::int64_t channel, int which, int lane) {
  float total = 0;
  for (std::int64_t split = lane; split < a.splits; split += 32) total += a.partial(sample, split, which)[channel];
  return over_warp(total);
}

// One warp per group of a sample.
template <class X>
__global__ void __launch_bounds__(32) settle(DeviceGroupNorm a) {
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t sample = blockIdx.x / a.groups, group = blockIdx.x % a.groups, width = a.channels / a.groups;
  const auto positions = static_cast<float>(a.positions);
  auto* const numbers = reinterpret_cast<ChannelNumbers*>(a.scratch + a.partial_floats()) + sample * a.channels;
  const std::int64_t index = sample * a.groups + group;
  if (a.gradient == nullptr) {
    Moments all;
    for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
      const float sum = over_splits(a, sample, c, 0, lane), squares = over_splits(a, sample, c, 1, lane);
      const float mean = origin_of<X>(a, sample, c) + sum / positions + (a.before == nullptr ? 0.0F : a.before[c]);
      all.join(positions, mean, squares - sum * (sum / positions));
      if (a.before != nullptr && lane == 0) a.distances(sample)[c] = mean;
    }
    const float rate = all.rate(a.epsilon);
    if (lane == 0) a.statistics[index] = all.mean, a.statistics[a.samples * a.groups + index] = rate;
    __syncwarp();
    for (std::int64_t c = group * width + lane; c < (group + 1) * width; c += 32) {
      numbers[c] = kernels::detail::numbers_forward(a, c, all.mean, rate);
      if (a.before != nullptr) a.distances(sample)[c] -= all.mean;
    }
    return;
  }
  float total = 0, products = 0;
  for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
    const float sum = over_splits(a, sample, c, 0, lane), product = over_splits(a, sample, c, 1, lane);
    const float w = a.weight == nullptr ? 1.0F : a.weight[c];
    total += w * sum;
    products += w * product;
    if (lane == 0) a.sum(sample, 0)[c] = product, a.sum(sample, 1)[c] = sum;
  }
  __syncwarp();
  const float mean = a.statistics[index], rate = a.statistics[a.samples * a.groups + index];
  const float elements = positions * static_cast<float>(width);
  for (std::int64_t c = group * width + lane; c < (group + 1) * width; c += 32) {
    numbers[c] = kernels::detail::numbers_backward(a, c, mean, rate, total / elements, products / elements);
    if (a.before != nullptr)
      a.sum(sample, 2)[c] = kernels::detail::gradient_of_before(numbers[c], a.sum(sample, 1)[c], positions,
                                                                a.distances(sample)[c], rate, total / elements);
  }
}

template <class X, class E>
__global__ void __launch_bounds__(kThreads) apply(DeviceGroupNorm a) {
  constexpr int kElements = sizeof(E) / sizeof(X);
  const std::int64_t sample = blockIdx.y, of_sample = a.channels * a.positions / kElements;
  const auto* const numbers = reinterpret_cast<const ChannelNumbers*>(a.scratch + a.partial_floats()) + sample * a.channels;
  const E* const x = reinterpret_cast<const E*>(static_cast<const X*>(a.x) + elements_of(a, sample));
  const E* const gradient =
      a.gradient == nullptr ? nullptr : reinterpret_cast<const E*>(static_cast<const X*>(a.gradient) + elements_of(a, sample));
  const E* const more =
      a.more == nullptr ? nullptr : reinterpret_cast<const E*>(static_cast<const X*>(a.more) + elements_of(a, sample));
  E* const out = reinterpret_cast<E*>(static_cast<X*>(a.out) + elements_of(a, sample));
  const GroupNormAct act{a.silu, a.slope};
  const auto places = static_cast<std::uint32_t>((a.channels_last ? a.channels : a.positions) / kElements);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < of_sample;
       i += std::int64_t{gridDim.x} * kThreads) {
    const auto at = static_cast<std::uint32_t>(i);  // a sample has fewer than 2^32 pieces
    const std::uint32_t first = a.channels_last ? at % places * kElements : at / places;
    const E here = x[i], upstream = gradient == nullptr ? here : gradient[i], beside = more == nullptr ? here : more[i];
    E result;
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const ChannelNumbers n = numbers[a.channels_last ? first + static_cast<std::uint32_t>(k) : first];
      const auto value = static_cast<float>(reinterpret_cast<const X*>(&here)[k]);
      float y = result_of(n, act, value, static_cast<float>(reinterpret_cast<const X*>(&upstream)[k]), gradient != nullptr);
      if (more != nullptr) y += static_cast<float>(reinterpret_cast<const X*>(&beside)[k]);
      reinterpret_cast<X*>(&result)[k] = static_cast<X>(y);
    }
    out[i] = result;
  }
}

template <class X, class E>
cudaError_t launch_all(const DeviceGroupNorm& a, cudaStream_t stream) {
  const auto of = [](std::int64_t n) { return static_cast<unsigned>(n); };
  if (a.channels_last) {
    sum_pixels<X, E><<<dim3(of(a.samples), of(a.splits)), kThreads, 0, stream>>>(a);
  } else {
    sum_planes<X, E><<<dim3(of(a.samples * a.channels), of(a.splits)), kThreads, 0, stream>>>(a);
  }
  settle<X><<<of(a.samples * a.groups), 32, 0, stream>>>(a);
  const std::int64_t pieces = a.channels * a.positions / static_cast<std::int64_t>(sizeof(E) / sizeof(X));
  const std::int64_t blocks = std::min<std::int64_t>((pieces + kThreads - 1) / kThreads, 4096);
  apply<X, E><<<dim3(of(blocks), of(a.samples)), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_group_norm(const DeviceGroupNorm& a, cudaStream_t stream) {
  return with_types(a.type, a.type, [&]<class X, class>() {
    const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0; };
    const std::int64_t neighbours = a.channels_last ? a.channels : a.positions;
    const bool pieces = neighbours % Piece<X>::kElements == 0 && begins_piece(a.x) && begins_piece(a.gradient) &&
                        begins_piece(a.more) && begins_piece(a.out);
    return pieces ? launch_all<X, Piece<X>>(a, stream) : launch_all<X, X>(a, stream);
  });
}

}  // namespace millrace::device
