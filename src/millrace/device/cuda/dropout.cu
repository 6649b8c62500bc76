#include "millrace/device/cuda/dropout.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>

#include "millrace/kernels/dropout_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::DropoutArgs;
using kernels::detail::DropoutOf;
using kernels::detail::DropoutRun;
using kernels::detail::Type;

// Passed with a launch, without a copy to the device.
struct Stretches {
  static constexpr std::size_t kMost = 32;
  DropoutRun at[kMost];
};

template <class X, class Out>
__global__ void dropout(DropoutOf<X, Out> of, const __grid_constant__ Stretches stretches) {
  const DropoutRun& stretch = stretches.at[blockIdx.y];
  const std::int64_t lanes = kernels::detail::lanes_of(stretch), step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t lane = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; lane < lanes; lane += step)
    of.lane(stretch, lane);
}

template <class X, class Out>
cudaError_t launch_of(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // threads loop if there are more elements
  const DropoutOf<X, Out> of{.x = static_cast<const X*>(args.x),
                             .residual = static_cast<const Out*>(args.residual),
                             .out = static_cast<Out*>(args.out),
                             .keep = args.keep};
  for (std::size_t begin = 0; begin < count; begin += Stretches::kMost) {
    Stretches some{};
    std::int64_t lanes = 0;
    const std::size_t here = std::min(count - begin, Stretches::kMost);
    for (std::size_t i = 0; i < here; ++i) {
      some.at[i] = stretches[begin + i];
      lanes = std::max(lanes, kernels::detail::lanes_of(some.at[i]));
    }
    if (lanes == 0) continue;
    const auto blocks = static_cast<unsigned>(std::min((lanes + kThreads - 1) / kThreads, kMostBlocks));
    dropout<X, Out><<<dim3(blocks, static_cast<unsigned>(here)), kThreads, 0, stream>>>(of, some);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template <class X>
cudaError_t launch_to(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, cudaStream_t stream) {
  switch (args.out_type) {
    case Type::f32:
      return launch_of<X, float>(args, stretches, count, stream);
    case Type::bf16:
      return launch_of<X, c10::BFloat16>(args, stretches, count, stream);
    case Type::f16:
      break;
  }
  return launch_of<X, c10::Half>(args, stretches, count, stream);
}

}  // namespace

cudaError_t launch_dropout(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, cudaStream_t stream) {
  switch (args.x_type) {
    case Type::f32:
      return launch_to<float>(args, stretches, count, stream);
    case Type::bf16:
      return launch_to<c10::BFloat16>(args, stretches, count, stream);
    case Type::f16:
      break;
  }
  return launch_to<c10::Half>(args, stretches, count, stream);
}

}  // namespace millrace::device
