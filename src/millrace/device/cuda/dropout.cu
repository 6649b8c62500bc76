#include "millrace/device/cuda/dropout.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstring>

#include "millrace/kernels/dropout_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::DropoutArgs;
using kernels::detail::DropoutOf;
using kernels::detail::DropoutRun;
using kernels::detail::RecordedSite;
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
__global__ void recorded_dropout(DropoutOf<X, Out> of, std::int64_t count, const RecordedSite* site) {
  of.keep.key = site->key;
  const DropoutRun stretch{.begin = 0, .count = count, .first = site->first};
  const std::int64_t lanes = kernels::detail::lanes_of(stretch), step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t lane = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; lane < lanes; lane += step)
    of.lane(stretch, lane);
}

struct Bytes {
  static constexpr std::size_t kMost = 2048;
  unsigned char at[kMost];
};

__global__ void write(unsigned char* to, const __grid_constant__ Bytes bytes, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = bytes.at[i];
}

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // threads loop if there are more elements

unsigned blocks_of(std::int64_t lanes) { return static_cast<unsigned>(std::min((lanes + kThreads - 1) / kThreads, kMostBlocks)); }

template <class X, class Out>
DropoutOf<X, Out> work_of(const DropoutArgs& args) {
  return {.x = static_cast<const X*>(args.x),
          .residual = static_cast<const Out*>(args.residual),
          .out = static_cast<Out*>(args.out),
          .keep = args.keep};
}

template <class X, class Out>
cudaError_t launch_of(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, cudaStream_t stream) {
  const DropoutOf<X, Out> of = work_of<X, Out>(args);
  for (std::size_t begin = 0; begin < count; begin += Stretches::kMost) {
    Stretches some{};
    std::int64_t lanes = 0;
    const std::size_t here = std::min(count - begin, Stretches::kMost);
    for (std::size_t i = 0; i < here; ++i) {
      some.at[i] = stretches[begin + i];
      lanes = std::max(lanes, kernels::detail::lanes_of(some.at[i]));
    }
    if (lanes == 0) continue;
    dropout<X, Out><<<dim3(blocks_of(lanes), static_cast<unsigned>(here)), kThreads, 0, stream>>>(of, some);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

// The first element may begin within a group: then one more group has elements.
template <class X, class Out>
cudaError_t launch_of(const DropoutArgs& args, const RecordedSite* site, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  const std::int64_t lanes = kernels::detail::kLanesOfGroup * ((args.count - 1) / kernels::kDropoutGroup + 2);
  recorded_dropout<X, Out><<<blocks_of(lanes), kThreads, 0, stream>>>(work_of<X, Out>(args), args.count, site);
  return cudaGetLastError();
}

// Calls `launch` with the types of input and output.
template <class X, class Launch>
cudaError_t with_out(Type out, const Launch& launch) {
  if (out == Type::f32) return launch.template operator()<X, float>();
  if (out == Type::bf16) return launch.template operator()<X, c10::BFloat16>();
  return launch.template operator()<X, c10::Half>();
}

template <class Launch>
cudaError_t with_types(const DropoutArgs& args, const Launch& launch) {
  if (args.x_type == Type::f32) return with_out<float>(args.out_type, launch);
  if (args.x_type == Type::bf16) return with_out<c10::BFloat16>(args.out_type, launch);
  return with_out<c10::Half>(args.out_type, launch);
}

}  // namespace

cudaError_t launch_dropout(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, cudaStream_t stream) {
  return with_types(args, [&]<class X, class Out>() { return launch_of<X, Out>(args, stretches, count, stream); });
}

cudaError_t launch_recorded_dropout(const DropoutArgs& args, const RecordedSite* on_device, cudaStream_t stream) {
  return with_types(args, [&]<class X, class Out>() { return launch_of<X, Out>(args, on_device, stream); });
}

cudaError_t load_recorded_dropout() {
  cudaError_t status = cudaSuccess;
  const auto load = [&]<class X, class Out>() {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, recorded_dropout<X, Out>);
  };
  for (const Type x : {Type::f32, Type::bf16, Type::f16}) {
    for (const Type out : {Type::f32, Type::bf16, Type::f16}) {
      DropoutArgs args{};
      args.x_type = x;
      args.out_type = out;
      if (status == cudaSuccess) status = with_types(args, load);
    }
  }
  return status;
}

cudaError_t launch_write(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < bytes; begin += Bytes::kMost) {
    Bytes some{};
    const std::size_t here = std::min(bytes - begin, Bytes::kMost);
    std::memcpy(some.at, static_cast<const unsigned char*>(from) + begin, here);
    write<<<1, kThreads, 0, stream>>>(static_cast<unsigned char*>(to) + begin, some, static_cast<unsigned>(here));
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace millrace::device
