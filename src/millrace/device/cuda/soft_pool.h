// The plugin's kernel for a blurred soft pooling.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

[[nodiscard]] cudaError_t launch_soft_pool(const kernels::detail::SoftPool& args, cudaStream_t stream);

}  // namespace millrace::device
