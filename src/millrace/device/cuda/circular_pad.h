// The plugin's kernels for circular padding.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// Writes the padded volume or, in the backward pass, the gradient of the unpadded volume.
[[nodiscard]] cudaError_t launch_circular_pad(const kernels::CircularPad& args, cudaStream_t stream);

}  // namespace millrace::device
