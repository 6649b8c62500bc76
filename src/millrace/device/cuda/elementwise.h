// The plugin's kernels that work element by element.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// `recorded`: key and first number of the site in the device's memory; null: those of args.keep are used.
[[nodiscard]] cudaError_t launch_dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::RecordedSite* recorded,
                                         cudaStream_t stream);
[[nodiscard]] cudaError_t launch_gelu(const kernels::detail::GeluArgs& args, const kernels::detail::RecordedSite* recorded,
                                      cudaStream_t stream);
// For tensors that are dense in any order.
[[nodiscard]] cudaError_t launch_pointwise(kernels::Pointwise function, const kernels::detail::PointwiseArgs& args,
                                           cudaStream_t stream);
// Copies bytes from the host to the device as arguments of launches. `from` may change when this returns.
[[nodiscard]] cudaError_t launch_write(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

}  // namespace millrace::device
