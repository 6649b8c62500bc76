// The plugin's kernels for a group norm with its activation.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/group_norm_lane.h"

namespace millrace::device {

// Makes three launches: sums over positions, numbers of each channel, the result. If there is a gradient, computes the backward
// pass.
[[nodiscard]] cudaError_t launch_group_norm(const kernels::DeviceGroupNorm& args, cudaStream_t stream);

}  // namespace millrace::device
