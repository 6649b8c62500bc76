// The plugin's kernel for sums of columns.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// `matrix` (rows, columns) is contiguous; a row's bytes are a multiple of 16. The kernel writes all of `parts` (blocks, columns).
[[nodiscard]] cudaError_t launch_column_sums(const void* matrix, kernels::detail::Type type, std::int64_t rows,
                                             std::int64_t columns, std::int64_t blocks, float* parts, cudaStream_t stream);

}  // namespace millrace::device
