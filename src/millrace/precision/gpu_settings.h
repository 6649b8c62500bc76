// Chooses settings of a GPU's algorithms: whether runs must repeat bits, and how cuDNN picks its convolutions.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace millrace::precision {

struct GpuSettings {
  bool deterministic = false;
  bool timed_convolutions = false;   // cuDNN times its algorithms once for each new shape; otherwise it uses its own rules
  std::string deterministic_reason;  // one line for the plan; "" if the config set nothing and there is nothing to choose
  std::string convolutions_reason;
};

// `deterministic` is the setting train.deterministic. `timed` is device.cudnn, nullopt = auto. Timing may choose another
// algorithm in each run. So if bits must repeat, cuDNN uses its own rules, whatever `timed` is.
[[nodiscard]] GpuSettings choose_gpu_settings(bool deterministic, std::optional<bool> timed, c10::Device device);

// Applies the settings to the whole process; no effect on a CPU. Call it before the first operation on the GPU, because cuBLAS
// reads the environment when it starts. Throws ConfigError if CUBLAS_WORKSPACE_CONFIG has a value with which bits do not repeat.
void use_gpu_settings(const GpuSettings& settings, c10::Device device);

}  // namespace millrace::precision
