#include "millrace/device/cuda/lerp.h"

#include <algorithm>
#include <cstdint>

#include "millrace/device/cuda/launch.h"

namespace millrace::device {
namespace {

using kernels::detail::kLerpBlocks;
using kernels::detail::kLerpThreads;
using kernels::detail::Lerp;
using kernels::detail::lerp_of;

// Handles sixteen bytes at a time if both tensors begin at a multiple of sixteen bytes, and the rest one element at a time.
__global__ void __launch_bounds__(kLerpThreads) lerp(const __grid_constant__ Lerp args) {
  constexpr int kElements = Piece<float>::kElements;
  const Lerp::Pair pair = args.pairs[blockIdx.y];
  const float weight = *args.weight;
  const std::int64_t begin = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = std::int64_t{gridDim.x} * blockDim.x;
  const auto address = reinterpret_cast<std::uintptr_t>(pair.average) | reinterpret_cast<std::uintptr_t>(pair.value);
  const std::int64_t pieces = address % sizeof(Piece<float>) == 0 ? pair.count / kElements : 0;
  auto* const averages = reinterpret_cast<Piece<float>*>(pair.average);
  for (std::int64_t i = begin; i < pieces; i += step) {
    Piece<float> average = averages[i];
    const Piece<float> value = reinterpret_cast<const Piece<float>*>(pair.value)[i];
#pragma unroll
    for (int k = 0; k < kElements; ++k) average.at[k] = lerp_of(average.at[k], value.at[k], weight);
    averages[i] = average;
  }
  for (std::int64_t i = pieces * kElements + begin; i < pair.count; i += step)
    pair.average[i] = lerp_of(pair.average[i], pair.value[i], weight);
}

}  // namespace

cudaError_t launch_lerp(const Lerp& args, cudaStream_t stream) {
  std::int64_t most = 0;
  for (int i = 0; i < args.count; ++i) most = std::max(most, args.pairs[i].count);
  const std::int64_t wanted = (most / Piece<float>::kElements + kLerpThreads) / kLerpThreads;
  const dim3 grid(static_cast<unsigned>(std::min(wanted, kLerpBlocks)), static_cast<unsigned>(args.count));
  lerp<<<grid, kLerpThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace millrace::device
