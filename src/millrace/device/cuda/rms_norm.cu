#include "millrace/device/cuda/rms_norm.h"

#include <algorithm>

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/rms_norm_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::rms_addend;
using kernels::detail::rms_result;
using kernels::detail::RmsNorm;

constexpr int kThreads = 256;

// For contiguous tensors. One thread per position; neighbouring threads read neighbouring elements of a channel.
template <class X>
__global__ void __launch_bounds__(kThreads, 2) planes(RmsNorm a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.samples * a.positions) return;
  const auto at = static_cast<std::uint32_t>(i), of = static_cast<std::uint32_t>(a.positions);  // 32-bit division is faster
  const std::int64_t first = static_cast<std::int64_t>(at / of) * a.channels * a.positions + static_cast<std::int64_t>(at % of);
  const X* const x = static_cast<const X*>(a.x) + first;
  const X* const gradient = a.gradient == nullptr ? x : static_cast<const X*>(a.gradient) + first;
  X* const out = static_cast<X*>(a.out) + first;
  float rate = a.gradient == nullptr ? 0.0F : a.rates[i], total = 0;
  for (std::int64_t c = 0; c < a.channels; ++c)
    total += rms_addend(a, static_cast<float>(x[c * a.positions]), static_cast<float>(gradient[c * a.positions]), rate);
  const auto count = static_cast<float>(a.channels);
  if (a.gradient == nullptr) a.rates[i] = rate = kernels::detail::rms_rate(total, count, a.epsilon);
  for (std::int64_t c = 0; c < a.channels; ++c) {
    const float value = static_cast<float>(x[c * a.positions]), upstream = static_cast<float>(gradient[c * a.positions]);
    out[c * a.positions] = static_cast<X>(rms_result(a, value, upstream, rate, total / count));
  }
}

// For channels-last tensors. One warp per position. E is the type that a lane reads at once: an element, or several neighbouring
// elements.
template <class X, class E>
__global__ void __launch_bounds__(kThreads, 2) pixels(RmsNorm a) {
  constexpr int kElements = sizeof(E) / sizeof(X);
  const std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32, pieces = a.channels / kElements;
  if (i >= a.samples * a.positions) return;
  const E* const x = reinterpret_cast<const E*>(static_cast<const X*>(a.x) + i * a.channels);
  const E* const gradient =
      a.gradient == nullptr ? x : reinterpret_cast<const E*>(static_cast<const X*>(a.gradient) + i * a.channels);
  E* const out = reinterpret_cast<E*>(static_cast<X*>(a.out) + i * a.channels);
  const std::int64_t lane = threadIdx.x % 32;
  float rate = a.gradient == nullptr ? 0.0F : a.rates[i], total = 0;
  const auto element = [](const E& piece, int k) { return static_cast<float>(reinterpret_cast<const X*>(&piece)[k]); };
  for (std::int64_t p = lane; p < pieces; p += 32) {
    const E here = x[p], upstream = gradient[p];
#pragma unroll
    for (int k = 0; k < kElements; ++k) total += rms_addend(a, element(here, k), element(upstream, k), rate);
  }
  total = over_warp(total);
  const auto count = static_cast<float>(a.channels);
  if (a.gradient == nullptr) rate = kernels::detail::rms_rate(total, count, a.epsilon);
  if (a.gradient == nullptr && lane == 0) a.rates[i] = rate;
  for (std::int64_t p = lane; p < pieces; p += 32) {
    const E here = x[p], upstream = gradient[p];
    E done;
#pragma unroll
    for (int k = 0; k < kElements; ++k)
      reinterpret_cast<X*>(&done)[k] = static_cast<X>(rms_result(a, element(here, k), element(upstream, k), rate, total / count));
    out[p] = done;
  }
}

}  // namespace

cudaError_t launch_rms_norm(const RmsNorm& a, cudaStream_t stream) {
  return with_types(a.type, a.type, [&]<class X, class>() {
    const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0; };
    const bool pieces =
        a.channels % Piece<X>::kElements == 0 && begins_piece(a.x) && begins_piece(a.gradient) && begins_piece(a.out);
    const std::int64_t of_block = a.channels_last ? kThreads / 32 : kThreads;
    const auto blocks = static_cast<unsigned>((a.samples * a.positions + of_block - 1) / of_block);
    if (!a.channels_last) {
      planes<X><<<blocks, kThreads, 0, stream>>>(a);
    } else if (pieces) {
      pixels<X, Piece<X>><<<blocks, kThreads, 0, stream>>>(a);
    } else {
      pixels<X, X><<<blocks, kThreads, 0, stream>>>(a);
    }
    return cudaGetLastError();
  });
}

}  // namespace millrace::device
