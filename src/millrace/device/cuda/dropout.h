// The dropout kernel of the plugin.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "millrace/kernels/dropout_lane.h"

namespace millrace::device {

// Runs on `stream`, in as many launches as the runs need; stops at the first CUDA error and returns it.
[[nodiscard]] cudaError_t launch_dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::DropoutRun* stretches,
                                         std::size_t count, cudaStream_t stream);
// One run, whose key and first number the kernel reads from the device's memory.
[[nodiscard]] cudaError_t launch_recorded_dropout(const kernels::detail::DropoutArgs& args,
                                                  const kernels::detail::RecordedSite* on_device, cudaStream_t stream);
// Loads its code, which a first launch would do otherwise, and which a recording forbids.
[[nodiscard]] cudaError_t load_recorded_dropout();
// Copies the host's bytes to the device's memory as arguments of launches; `from` may change when this returns.
[[nodiscard]] cudaError_t launch_write(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

}  // namespace millrace::device
