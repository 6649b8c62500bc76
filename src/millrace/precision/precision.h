// Which number format a run computes in, and why.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>

namespace millrace::precision {

struct Decision {
  std::optional<c10::ScalarType> autocast;  // nullopt = fp32
  std::string reason;                       // one line for the plan, with the trial's figures if there was one
};

// What a trial of one step in a format measured.
struct Trial {
  double step_ms = 0;
  double loss = 0;
  double gradient_norm = 0;
};

// `auto`: bf16 where the hardware does it well (CPU: AVX512_BF16 or AMX; CUDA: compute capability >= 8.0) and a trial agrees:
// faster than fp32, loss within 2 %, gradient norm within 10 %, all finite. `run_trial` runs a step without updating anything and
// is called with the format to use, alternating; empty = no trial (the hardware alone decides).
[[nodiscard]] Decision choose(c10::Device device, const std::function<Trial(std::optional<c10::ScalarType>)>& run_trial);
[[nodiscard]] bool hardware_has_fast_bf16(c10::Device device, std::string* reason);

}  // namespace millrace::precision
