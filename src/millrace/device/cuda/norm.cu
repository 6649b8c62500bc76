#include "millrace/device/cuda/norm.h"

#include <algorithm>

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/norm_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::Keep;
using kernels::detail::NormBackward;
using kernels::detail::NormForward;
using kernels::detail::NormGradientRow;
using kernels::detail::NormRow;
using kernels::detail::RecordedSite;

constexpr int kWarps = 4;  // warps of a block; each handles one row at a time

// Returns the dropout of a row. In a recorded step its key and first number come from the device's memory.
__device__ Keep keep_of(const Keep& given, const RecordedSite* recorded, std::int64_t row, std::int64_t width) {
  Keep keep = given;
  if (recorded != nullptr) keep = {recorded->key, recorded->first, given.threshold, given.scale};
  keep.first += row * width;
  return keep;
}

template <class R, class Y, int kGroups>
__global__ void __launch_bounds__(32 * kWarps) norm_forward(NormForward args, std::int64_t rows, const RecordedSite* recorded) {
  const std::int64_t width = args.width;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < rows; i += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t begin = i * width;
    NormRow<kGroups> row{.lane = static_cast<int>(threadIdx.x % 32), .width = width};
    const auto* branch = args.branch == nullptr ? nullptr : static_cast<const Y*>(args.branch) + begin;
    load_sum(row, static_cast<const R*>(args.residual) + begin, branch, static_cast<R*>(args.sum) + begin,
             keep_of(args.keep, recorded, i, width));
    const float mean = over_warp(row.sum()) / static_cast<float>(width);
    const float rate = 1.0F / sqrtf(over_warp(row.squares(mean)) / static_cast<float>(width) + args.epsilon);
    if (row.lane == 0) args.statistics[2 * i] = mean, args.statistics[2 * i + 1] = rate;
    write_normed(row, mean, rate, args.weight, args.bias, static_cast<Y*>(args.y) + begin);
  }
}

// `partial` (2, blocks, width): each block's summand of the gradients of weight and bias.
template <class R, class Y, int kGroups>
__global__ void __launch_bounds__(32 * kWarps)
    norm_backward(NormBackward args, std::int64_t rows, const RecordedSite* recorded, float* partial) {
  extern __shared__ float shared[];  // of shape (2, width)
  const std::int64_t width = args.width;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float weight_gradient[8 * kGroups] = {}, bias_gradient[8 * kGroups] = {};
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < rows; i += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t begin = i * width;
    const float rate = args.statistics[2 * i + 1];
    NormGradientRow<kGroups> row{.normed = {.lane = lane, .width = width}};
    load_gradient(row, static_cast<const R*>(args.sum) + begin, static_cast<const Y*>(args.y_gradient) + begin, args.weight,
                  args.statistics[2 * i], rate, weight_gradient, bias_gradient);
    const float mean_weighted = over_warp(sum_of_weighted(row)) / static_cast<float>(width);
    const float mean_product = over_warp(sum_of_products(row)) / static_cast<float>(width);
    const auto* added = args.sum_gradient == nullptr ? nullptr : static_cast<const R*>(args.sum_gradient) + begin;
    auto* branch = args.branch_gradient == nullptr ? nullptr : static_cast<Y*>(args.branch_gradient) + begin;
    write_gradient(row, rate, mean_weighted, mean_product, added, static_cast<R*>(args.residual_gradient) + begin, branch,
                   keep_of(args.keep, recorded, i, width));
  }
  const NormRow<kGroups> place{.lane = lane, .width = width};
  for (int warp = 0; warp < kWarps; ++warp) {  // in a fixed order, so that the sum does not depend on which warp comes first
    if (static_cast<int>(threadIdx.x / 32) == warp) {
#pragma unroll
      for (int slot = 0; slot < kGroups; ++slot) {
        if (!place.has(slot)) continue;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const std::int64_t column = place.column(slot, i / 2) + i % 2;
          const float before_weight = warp == 0 ? 0.0F : shared[column], before_bias = warp == 0 ? 0.0F : shared[width + column];
          shared[column] = before_weight + weight_gradient[8 * slot + i];
          shared[width + column] = before_bias + bias_gradient[8 * slot + i];
        }
      }
    }
    __syncthreads();
  }
  for (std::int64_t column = threadIdx.x; column < width; column += 32 * kWarps) {
    partial[std::int64_t{blockIdx.x} * width + column] = shared[column];
    partial[(std::int64_t{gridDim.x} + blockIdx.x) * width + column] = shared[width + column];
  }
}

// Calls `launch` with the number of groups that each half warp needs for this width.
template <class R, class Y, class Launch>
cudaError_t with_groups(std::int64_t width, const Launch& launch) {
  return width <= 512 ? launch.template operator()<R, Y, 2>() : launch.template operator()<R, Y, 4>();
}

unsigned blocks_of(std::int64_t rows, std::int64_t most) {
  return static_cast<unsigned>(std::min((rows + kWarps - 1) / kWarps, most));
}

}  // namespace

cudaError_t launch_norm_forward(const NormForward& args, std::int64_t rows, const RecordedSite* recorded, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return with_types(args.residual_type, args.y_type, [&]<class R, class Y>() {
    return with_groups<R, Y>(args.width, [&]<class Residual, class Out, int kGroups>() {
      norm_forward<Residual, Out, kGroups>
          <<<blocks_of(rows, std::int64_t{1} << 20), 32 * kWarps, 0, stream>>>(args, rows, recorded);
      return cudaGetLastError();
    });
  });
}

cudaError_t launch_norm_backward(const NormBackward& args, std::int64_t rows, std::int64_t blocks, const RecordedSite* recorded,
                                 float* partial, cudaStream_t stream) {
  return with_types(args.residual_type, args.y_type, [&]<class R, class Y>() {
    return with_groups<R, Y>(args.width, [&]<class Residual, class Out, int kGroups>() {
      const std::size_t shared = 2 * sizeof(float) * static_cast<std::size_t>(args.width);
      norm_backward<Residual, Out, kGroups>
          <<<static_cast<unsigned>(blocks), 32 * kWarps, shared, stream>>>(args, rows, recorded, partial);
      return cudaGetLastError();
    });
  });
}

}  // namespace millrace::device
