// Records work with Kineto, LibTorch's own profiler.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace millrace {

// The recording as text (JSON), for the program Perfetto and for detail/profile_table.h.
[[nodiscard]] std::string text_of(torch::autograd::profiler::ProfilerResult& result);

// Runs `work` and returns its trace: operations, and a GPU's kernels and copies. Waits for the device before and after `work`. A
// process can make only one recording at a time.
[[nodiscard]] std::string trace_of(c10::Device device, const std::function<void()>& work);

}  // namespace millrace
