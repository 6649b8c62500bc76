// The plugin's kernels for an RMS norm over channels followed by SiLU.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// Writes the result and args.rates. If args has a gradient, computes the backward pass, which reads args.rates.
[[nodiscard]] cudaError_t launch_rms_norm(const kernels::detail::RmsNorm& args, cudaStream_t stream);

}  // namespace millrace::device
