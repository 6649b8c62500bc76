#include "millrace/device/cuda/soft_pool.h"

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/soft_pool_lane.h"

namespace millrace::device {
namespace {

using kernels::detail::pool_threads;
using kernels::detail::SoftPool;

constexpr unsigned kThreads = 256;

// One thread per element of the result. Neighbouring threads read neighbouring elements, and elements that several threads read
// come from the cache.
template <class X>
__global__ void __launch_bounds__(kThreads) soft_pool(SoftPool a, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) kernels::detail::soft_pool_element<X>(a, i);
}

}  // namespace

cudaError_t launch_soft_pool(const SoftPool& args, cudaStream_t stream) {
  return with_types(args.type, args.type, [&]<class X, class>() {
    const std::int64_t count = pool_threads(args);
    if (count >= std::int64_t{1} << 31) return cudaErrorInvalidValue;
    const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    soft_pool<X><<<blocks, kThreads, 0, stream>>>(args, static_cast<std::uint32_t>(count));
    return cudaGetLastError();
  });
}

}  // namespace millrace::device
