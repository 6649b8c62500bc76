#include "millrace/device/cuda/column_sums.h"

#include "millrace/device/cuda/launch.h"

namespace millrace::device {
namespace {

constexpr int kWarps = 8;  // warps of a block

// The lanes of a warp read neighbouring 16-byte pieces of a row. The warps of a block handle the block's rows in turn.
template <class X>
__global__ void __launch_bounds__(32 * kWarps)
    column_sums(const X* matrix, std::int64_t rows, std::int64_t columns, float* parts) {
  constexpr int kElements = Piece<X>::kElements;
  __shared__ float shared[kWarps][32 * kElements];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t piece = std::int64_t{blockIdx.x} * 32 + lane;
  float sums[kElements] = {};
  if (piece * kElements < columns) {
    const std::int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
    for (std::int64_t row = begin + warp; row < end; row += kWarps) {
      const Piece<X> here = reinterpret_cast<const Piece<X>*>(matrix + row * columns)[piece];
#pragma unroll
      for (int i = 0; i < kElements; ++i) sums[i] += static_cast<float>(here.at[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) shared[warp][i * 32 + lane] = sums[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 32 * kElements; i += 32 * kWarps) {
    float total = 0;
    for (int other = 0; other < kWarps; ++other) total += shared[other][i];
    const std::int64_t column = (std::int64_t{blockIdx.x} * 32 + i % 32) * kElements + i / 32;
    if (column < columns) parts[std::int64_t{blockIdx.y} * columns + column] = total;
  }
}

}  // namespace

cudaError_t launch_column_sums(const void* matrix, kernels::detail::Type type, std::int64_t rows, std::int64_t columns,
                               std::int64_t blocks, float* parts, cudaStream_t stream) {
  return with_types(type, type, [&]<class X, class>() {
    const std::int64_t of_warp = 32 * Piece<X>::kElements;
    const dim3 grid(static_cast<unsigned>((columns + of_warp - 1) / of_warp), static_cast<unsigned>(blocks));
    column_sums<X><<<grid, 32 * kWarps, 0, stream>>>(static_cast<const X*>(matrix), rows, columns, parts);
    return cudaGetLastError();
  });
}

}  // namespace millrace::device
