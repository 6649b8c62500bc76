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
inline constexpr const char* kNoDeviceEntry = "millrace_cuda_no_device";
// Increased with every change of Backend or kernels::DeviceTable. A plugin with another number is refused.
inline constexpr int kPluginInterface = 6;

// The plugin's function that returns its backend; null if the plugin was built for another interface. Never throws.
using PluginEntry = Backend* (*)(int interface);
// The plugin's function that returns its kernels. A plugin built without nvcc does not have this function.
using KernelsEntry = const kernels::DeviceTable* (*)();
// The plugin's function that says why there is no GPU; "" if there is one. Never throws.
using NoDeviceEntry = const char* (*)();

// Says why CUDA offers no GPU. `error` is the result of cudaGetDeviceCount(), and `said` is its text. `driver` and `runtime` are
// the versions of CUDA as CUDA writes them, 12040 for 12.4. `visible` is CUDA_VISIBLE_DEVICES; null if it is not set.
[[nodiscard]] inline std::string why_no_device(int error, const std::string& said, int driver, int runtime, const char* visible) {
  constexpr int kOldDriver = 35, kNoDevice = 100, kNotReady = 802;  // values of cudaError_t
  const auto version = [](int of) { return std::to_string(of / 1000) + "." + std::to_string(of % 1000 / 10); };
  if (error == kOldDriver)
    return "the NVIDIA driver is for CUDA " + version(driver) + " and LibTorch needs CUDA " + version(runtime) +
           ": install a newer driver";
  if (error != 0 && error != kNoDevice) {
    const std::string fabric =
        error == kNotReady ? "; GPUs that are linked by NVSwitch wait for the service nvidia-fabricmanager" : "";
    return "CUDA does not start: " + said + " (error " + std::to_string(error) + ")" + fabric;
  }
  const std::string hidden = visible == nullptr ? "" : "; CUDA_VISIBLE_DEVICES is \"" + std::string(visible) + "\"";
  return "the NVIDIA driver lists no GPU" + hidden;
}

// Returns `own`, the plugin's kernels; null if a device of this backend is older than the oldest GPU for which they are compiled.
[[nodiscard]] const kernels::DeviceTable* kernels_for(const Backend& cuda, const kernels::DeviceTable* own);

// Opens the first plugin that exists in `folders`. Returns null, with a reason, if there is no plugin or it can't be used.
Backend* open_plugin(const std::vector<std::filesystem::path>& folders, std::string& reason);

// Implements choose(), with the machine's properties as arguments. `cuda` may be null, and `why_no_cuda` then says why.
// `has_gpu`: the kernel of the operating system knows a GPU.
Choice choose(const std::string& wish, int local_rank, const Backend* cuda, const std::string& why_no_cuda, bool has_gpu);

}  // namespace millrace::device::detail
