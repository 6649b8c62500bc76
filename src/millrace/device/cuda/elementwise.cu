#include "millrace/device/cuda/elementwise.h"

#include <algorithm>
#include <cstring>

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/gelu_lane.h"
#include "millrace/kernels/pointwise_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::DropoutArgs;
using kernels::detail::DropoutOf;
using kernels::detail::GeluArgs;
using kernels::detail::GeluOf;
using kernels::detail::PointwiseArgs;
using kernels::detail::RecordedSite;

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;  // if there are more elements, threads loop

template <class Of>
__global__ void __launch_bounds__(kThreads) elementwise(Of of, std::int64_t count, const RecordedSite* recorded) {
  if (recorded != nullptr) {
    of.keep.key = recorded->key;
    of.keep.first = recorded->first;
  }
  const std::int64_t lanes = kernels::detail::lanes_of(of.keep.first, count), step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t lane = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; lane < lanes; lane += step) of.lane(count, lane);
}

template <class Of>
cudaError_t launch(const Of& of, std::int64_t count, const RecordedSite* recorded, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  // The first element may lie inside a group, so the elements may extend over one more group.
  const std::int64_t lanes = kernels::detail::kLanesOfGroup * ((count - 1) / kernels::kDropoutGroup + 2);
  const auto blocks = static_cast<unsigned>(std::min((lanes + kThreads - 1) / kThreads, kMostBlocks));
  elementwise<<<blocks, kThreads, 0, stream>>>(of, count, recorded);
  return cudaGetLastError();
}

// Handles sixteen bytes at a time if all tensors begin at a multiple of sixteen bytes, and the rest one element at a time.
template <class Function, class X>
__global__ void __launch_bounds__(kThreads)
    pointwise(const X* x, const X* gradient, X* out, std::int64_t count, bool whole_pieces) {
  constexpr int kElements = Piece<X>::kElements;
  const std::int64_t begin = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t pieces = whole_pieces ? count / kElements : 0;
  for (std::int64_t i = begin; i < pieces; i += step) {
    Piece<X> piece = reinterpret_cast<const Piece<X>*>(x)[i];
    if (gradient == nullptr) {
#pragma unroll
      for (int k = 0; k < kElements; ++k) piece.at[k] = kernels::detail::pointwise_of<Function>(piece.at[k], gradient, 0);
    } else {
      const Piece<X> upstream = reinterpret_cast<const Piece<X>*>(gradient)[i];
#pragma unroll
      for (int k = 0; k < kElements; ++k) piece.at[k] = kernels::detail::pointwise_of<Function>(piece.at[k], upstream.at, k);
    }
    reinterpret_cast<Piece<X>*>(out)[i] = piece;
  }
  for (std::int64_t i = pieces * kElements + begin; i < count; i += step)
    out[i] = kernels::detail::pointwise_of<Function>(x[i], gradient, i);
}

template <class Function>
cudaError_t launch_function(const PointwiseArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  return with_types(args.type, args.type, [&]<class X, class>() {
    const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0; };
    const bool whole = begins_piece(args.x) && begins_piece(args.gradient) && begins_piece(args.out);
    const std::int64_t threads = whole ? args.count / Piece<X>::kElements + 1 : args.count;
    const auto blocks = static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
    pointwise<Function><<<blocks, kThreads, 0, stream>>>(static_cast<const X*>(args.x), static_cast<const X*>(args.gradient),
                                                         static_cast<X*>(args.out), args.count, whole);
    return cudaGetLastError();
  });
}

// Bytes that are passed as an argument of a launch, without a copy to the device.
struct Bytes {
  static constexpr std::size_t kMost = 2048;
  unsigned char at[kMost];
};

__global__ void write(unsigned char* to, const __grid_constant__ Bytes bytes, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = bytes.at[i];
}

}  // namespace

cudaError_t launch_dropout(const DropoutArgs& args, const RecordedSite* recorded, cudaStream_t stream) {
  return with_types(args.x_type, args.out_type, [&]<class X, class Out>() {
    const DropoutOf<X, Out> of{.x = static_cast<const X*>(args.x),
                               .residual = static_cast<const Out*>(args.residual),
                               .out = static_cast<Out*>(args.out),
                               .keep = args.keep};
    return launch(of, args.count, recorded, stream);
  });
}

cudaError_t launch_gelu(const GeluArgs& args, const RecordedSite* recorded, cudaStream_t stream) {
  return with_types(args.type, args.type, [&]<class X, class>() {
    const GeluOf<X> of{.x = static_cast<const X*>(args.x),
                       .gradient = static_cast<const X*>(args.gradient),
                       .out = static_cast<X*>(args.out),
                       .keep = args.keep};
    return launch(of, args.count, recorded, stream);
  });
}

cudaError_t launch_pointwise(kernels::Pointwise function, const PointwiseArgs& args, cudaStream_t stream) {
  if (function == kernels::Pointwise::smooth_leaky) return launch_function<kernels::detail::SmoothLeaky>(args, stream);
  return launch_function<kernels::detail::QuickGelu>(args, stream);
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
