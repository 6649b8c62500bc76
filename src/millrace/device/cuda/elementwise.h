// The plugin's kernels that work element by element.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// `recorded`: the dropout's key and first number, in the device's memory; null: args.keep has them.
[[nodiscard]] cudaError_t launch_dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::RecordedSite* recorded,
                                         cudaStream_t stream);
[[nodiscard]] cudaError_t launch_gelu(const kernels::detail::GeluArgs& args, const kernels::detail::RecordedSite* recorded,
                                      cudaStream_t stream);
// All tensors must be dense, with their dimensions in any order.
[[nodiscard]] cudaError_t launch_pointwise(kernels::Pointwise function, const kernels::detail::PointwiseArgs& args,
                                           cudaStream_t stream);
// Copies bytes from the host to the device as arguments of launches. `from` may change after the call returns.
[[nodiscard]] cudaError_t launch_write(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

}  // namespace millrace::device
