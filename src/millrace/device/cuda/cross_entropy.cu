#include "millrace/device/cuda/cross_entropy.h"

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/cross_entropy_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::CrossEntropy;
using kernels::detail::ExpSum;

constexpr int kThreads = 256;  // threads of a block

__device__ ExpSum from_lane(const ExpSum& mine, int distance) {
  return {__shfl_xor_sync(0xFFFFFFFFU, mine.largest, distance), __shfl_xor_sync(0xFFFFFFFFU, mine.sum, distance)};
}

// Joins the sums of the kPerRow threads of a row, and returns the result to each of these threads.
template <int kPerRow>
__device__ ExpSum over_row(ExpSum mine) {
  for (int distance = 16; distance > 0; distance /= 2) mine.join(from_lane(mine, distance));
  if constexpr (kPerRow > 32) {
    __shared__ ExpSum of_warps[kThreads / 32];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = of_warps[0];
    for (int warp = 1; warp < kPerRow / 32; ++warp) mine.join(of_warps[warp]);
  }
  return mine;
}

// kPerRow threads share a row: a warp if the row is short, else a block.
template <class X, int kPerRow>
__global__ void __launch_bounds__(kThreads) forward(CrossEntropy args, std::int64_t rows, bool whole_pieces, float* losses) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kPerRow) + threadIdx.x / kPerRow;
  if (row >= rows) return;  // never true if each row has a block
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kPerRow);
  const X* const logits = static_cast<const X*>(args.logits) + row * args.classes;
  ExpSum mine;
  if (whole_pieces) {
    for (std::int64_t i = lane; i < args.classes / Piece<X>::kElements; i += kPerRow) {
      const Piece<X> piece = reinterpret_cast<const Piece<X>*>(logits)[i];
#pragma unroll
      for (const X x : piece.at) mine.add(static_cast<float>(x));
    }
  } else {
    for (std::int64_t i = lane; i < args.classes; i += kPerRow) mine.add(static_cast<float>(logits[i]));
  }
  const float log_sum = over_row<kPerRow>(mine).logarithm();
  if (lane != 0) return;
  args.log_sums[row] = log_sum;
  losses[row] = kernels::detail::loss_of_row(args, logits, row, log_sum);
}

template <class X, int kPerRow>
__global__ void __launch_bounds__(kThreads) backward(CrossEntropy args, std::int64_t rows, bool whole_pieces) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kPerRow) + threadIdx.x / kPerRow;
  if (row >= rows) return;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kPerRow);
  const std::int64_t begin = row * args.classes;
  const X* const logits = static_cast<const X*>(args.logits) + begin;
  X* const gradient = static_cast<X*>(args.gradient) + begin;
  const kernels::detail::LogitGradient of_row(args, row);
  const auto of = [&](X logit, std::int64_t column) { return static_cast<X>(of_row(static_cast<float>(logit), column)); };
  if (!whole_pieces) {
    for (std::int64_t i = lane; i < args.classes; i += kPerRow) gradient[i] = of(logits[i], i);
    return;
  }
  constexpr int kElements = Piece<X>::kElements;
  for (std::int64_t i = lane; i < args.classes / kElements; i += kPerRow) {
    Piece<X> piece = reinterpret_cast<const Piece<X>*>(logits)[i];
#pragma unroll
    for (int k = 0; k < kElements; ++k) piece.at[k] = of(piece.at[k], i * kElements + k);
    reinterpret_cast<Piece<X>*>(gradient)[i] = piece;
  }
}

constexpr std::int64_t kShort = 1024;  // most classes that a warp handles

template <class X>
bool has_whole_pieces(const CrossEntropy& args) {
  return args.classes % Piece<X>::kElements == 0 && reinterpret_cast<std::uintptr_t>(args.logits) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(args.gradient) % 16 == 0;
}

unsigned blocks_of(std::int64_t rows, int per_row) {
  const std::int64_t in_block = kThreads / per_row;
  return static_cast<unsigned>((rows + in_block - 1) / in_block);
}

template <class Launch>
cudaError_t with_type(kernels::detail::Type type, const Launch& launch) {
  return with_types(type, type, [&]<class X, class>() { return launch.template operator()<X>(); });
}

}  // namespace

cudaError_t launch_cross_entropy_forward(const CrossEntropy& args, std::int64_t rows, float* losses, cudaStream_t stream) {
  return with_type(args.type, [&]<class X>() {
    if (args.classes <= kShort) {
      forward<X, 32><<<blocks_of(rows, 32), kThreads, 0, stream>>>(args, rows, has_whole_pieces<X>(args), losses);
    } else {
      forward<X, kThreads><<<blocks_of(rows, kThreads), kThreads, 0, stream>>>(args, rows, has_whole_pieces<X>(args), losses);
    }
    return cudaGetLastError();
  });
}

cudaError_t launch_cross_entropy_backward(const CrossEntropy& args, std::int64_t rows, cudaStream_t stream) {
  return with_type(args.type, [&]<class X>() {
    if (args.classes <= kShort) {
      backward<X, 32><<<blocks_of(rows, 32), kThreads, 0, stream>>>(args, rows, has_whole_pieces<X>(args));
    } else {
      backward<X, kThreads><<<blocks_of(rows, kThreads), kThreads, 0, stream>>>(args, rows, has_whole_pieces<X>(args));
    }
    return cudaGetLastError();
  });
}

}  // namespace millrace::device
