// How a GPU chooses among ways to compute the same thing: whether runs must give the same bits, and how cuDNN picks its
// convolutions.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace millrace::precision {

struct GpuSettings {
  bool deterministic = false;
  bool timed_convolutions = false;   // cuDNN times its ways for each new shape, once; else it goes by rules of its own
  std::string deterministic_reason;  // one line for the plan; "" = nothing to say: it was left to us, and nothing is to choose
  std::string convolutions_reason;
};

// `deterministic`: train.deterministic; `timed`: device.cudnn, nullopt = auto. A timing may choose another way in each
// run: where bits must repeat, cuDNN goes by its rules whatever is wished.
[[nodiscard]] GpuSettings choose_gpu_settings(bool deterministic, std::optional<bool> timed, c10::Device device);

// Of the whole process, before the first operation on the GPU, since cuBLAS reads the environment as it starts; nothing on a CPU.
// ConfigError where CUBLAS_WORKSPACE_CONFIG is set to what gives other bits each time.
void use_gpu_settings(const GpuSettings& settings, c10::Device device);

}  // namespace millrace::precision
