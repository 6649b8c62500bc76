// The interface between the program and libmillrace_cuda.so: one C function, found by name.
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
// Raised with every change of Backend or kernels::DeviceTable; a plugin with another number is refused.
inline constexpr int kPluginInterface = 5;

// The plugin's function: returns its backend, or null if it was built for another interface. Never throws.
using PluginEntry = Backend* (*)(int interface);
// The plugin's kernels; a plugin built without nvcc lacks the function.
using KernelsEntry = const kernels::DeviceTable* (*)();

// Opens the first plugin in `folders` that exists. Null with a reason if there is none or it can't be used.
Backend* open_plugin(const std::vector<std::filesystem::path>& folders, std::string& reason);

// choose() with the machine as arguments: `cuda` may be null, and `why_no_cuda` says why; `has_gpu` is the kernel's answer.
Choice choose(const std::string& wish, int local_rank, const Backend* cuda, const std::string& why_no_cuda, bool has_gpu);

}  // namespace millrace::device::detail
