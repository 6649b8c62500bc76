// The plugin's kernels for a group norm with its activation.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/group_norm_lane.h"

namespace millrace::device {

// Launches three kernels: for the sums over positions, the ChannelNumbers of each channel, and the result. If args.gradient is
// not null, computes the backward pass.
[[nodiscard]] cudaError_t launch_group_norm(const kernels::DeviceGroupNorm& args, cudaStream_t stream);

}  // namespace millrace::device
