// The plugin's kernels for cross-entropy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// Writes args.log_sums and the loss of each row. The loss is 0 for a row whose target is args.ignore_index, and NaN for a target
// that is not a class.
[[nodiscard]] cudaError_t launch_cross_entropy_forward(const kernels::detail::CrossEntropy& args, std::int64_t rows,
                                                       float* losses, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_cross_entropy_backward(const kernels::detail::CrossEntropy& args, std::int64_t rows,
                                                        cudaStream_t stream);

}  // namespace millrace::device
