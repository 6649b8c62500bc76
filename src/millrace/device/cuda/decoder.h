// The plugin's kernels for a decoder's layers.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/decoder_lane.h"

namespace millrace::device {

[[nodiscard]] cudaError_t launch_rms_rows(const kernels::DeviceRms& args, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_swiglu(const kernels::DeviceSwiglu& args, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_turn(const kernels::DeviceTurn& args, cudaStream_t stream);

}  // namespace millrace::device
