// The plugin's kernel for a running mean of many tensors.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/lerp_lane.h"

namespace millrace::device {

[[nodiscard]] cudaError_t launch_lerp(const kernels::detail::Lerp& args, cudaStream_t stream);

}  // namespace millrace::device
