// A recording of work by Kineto, LibTorch's own profiler.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace millrace {

// What Kineto recorded, as text for Perfetto and for detail/profile_table.h.
[[nodiscard]] std::string text_of(torch::autograd::profiler::ProfilerResult& result);

// Runs `work` and returns its trace: operations, and a GPU's kernels and copies. Waits for the device before and after. One
// recording at a time in a process.
[[nodiscard]] std::string trace_of(c10::Device device, const std::function<void()>& work);

}  // namespace millrace
