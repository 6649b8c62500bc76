// The plugin's kernels for an RMS norm over channels with SiLU behind it.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// Writes the result and args.rates; backward, where there is a gradient, reads them.
[[nodiscard]] cudaError_t launch_rms_norm(const kernels::detail::RmsNorm& args, cudaStream_t stream);

}  // namespace millrace::device
