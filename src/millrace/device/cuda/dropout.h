// The dropout kernel of the plugin.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "millrace/kernels/dropout_lane.h"

namespace millrace::device {

// Runs on `stream`, in as many launches as the runs need; stops at the first CUDA error and returns it.
[[nodiscard]] cudaError_t launch_dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::DropoutRun* stretches,
                                         std::size_t count, cudaStream_t stream);

}  // namespace millrace::device
