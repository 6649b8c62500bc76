// The plugin's kernels for a layer norm, with the residual sum and dropout before the norm.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// For widths that are multiples of 128 and at most 1,024. `recorded`: the dropout's key and first number, in the device's
// memory; null: args.keep has them.
[[nodiscard]] cudaError_t launch_norm_forward(const kernels::detail::NormForward& args, std::int64_t rows,
                                              const kernels::detail::RecordedSite* recorded, cudaStream_t stream);
// `partial` (2, blocks, width): each block's summand of the gradients of weight and bias. The kernel writes all of it.
[[nodiscard]] cudaError_t launch_norm_backward(const kernels::detail::NormBackward& args, std::int64_t rows, std::int64_t blocks,
                                               const kernels::detail::RecordedSite* recorded, float* partial,
                                               cudaStream_t stream);

}  // namespace millrace::device
