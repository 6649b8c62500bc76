// The interface between the program and libmillrace_cuda.so: C functions that are found by name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/kernels/device_table.h"

namespace millrace::device::detail {

inline constexpr const char* kPluginFile = "libmillrace_cuda.so";
inline constexpr const char* kPluginEntry = "millrace_cuda_backend";
inline constexpr const char* kKernelsEntry = "millrace_cuda_kernels";
// Increased with every change of Backend or kernels::DeviceTable. A plugin with another number is refused.
inline constexpr int kPluginInterface = 6;

// The plugin's function that returns its backend; null if the plugin was built for another interface. Never throws.
using PluginEntry = Backend* (*)(int interface);
// The plugin's function that returns its kernels. A plugin built without nvcc does not have this function.
using KernelsEntry = const kernels::DeviceTable* (*)();

// Returns `own`, the plugin's kernels; null if a device of this backend is older than the oldest GPU for which they are compiled.
[[nodiscard]] const kernels::DeviceTable* kernels_for(const Backend& cuda, const kernels::DeviceTable* own);

// Opens the first plugin that exists in `folders`. Returns null, with a reason, if there is no plugin or it can't be used.
Backend* open_plugin(const std::vector<std::filesystem::path>& folders, std::string& reason);

// Implements choose(), with the machine's properties as arguments. `cuda` may be null, and `why_no_cuda` then says why.
// `has_gpu`: the kernel of the operating system knows a GPU.
Choice choose(const std::string& wish, int local_rank, const Backend* cuda, const std::string& why_no_cuda, bool has_gpu);

}  // namespace millrace::device::detail
