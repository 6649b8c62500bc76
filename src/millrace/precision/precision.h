// Which number format a run computes in, with the reason.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/system/work_clock.h"

namespace millrace::precision {

struct Decision {
  std::optional<c10::ScalarType> autocast;  // nullopt = fp32
  std::string reason;                       // one line for the plan, with the trial's figures if there was one
  bool by_time = false;                     // a trial found both formats right, and the cores were this process's own
};

// Measurements of one trial step in a format.
struct Trial {
  double step_ms = 0;
  double loss = 0;
  double gradient_norm = 0;
  double gradient_cosine = 1;        // cosine between this gradient and that of the fp32 trial before it
  std::string objective = {};        // "" if there is only one
  std::vector<Trial> others = {};    // the other objectives of a step with several; each must agree, step_ms is the whole step's
  double worst_gradient = 0;         // the largest relative error of one parameter's gradient, compared with the same fp32 trial
  std::string worst_parameter = {};  // the parameter with that error
  std::optional<double> busy_ms =
      {};  // part of step_ms that the busiest thread spent on a core; nullopt: all of it, or on a device
};
// Compares the times of trials that were made in turns (system/work_clock.h).
[[nodiscard]] Comparison compare_times(std::span<const Trial> first, std::span<const Trial> second);
inline constexpr double kWorstGradient = 0.25;     // ten times bf16's error; a library's faults give larger errors
[[nodiscard]] bool is_finite(const Trial& trial);  // loss and gradients, of every objective
[[nodiscard]] const Trial& worst_of(std::span<const Trial> rounds);  // the round with the worst gradient; not empty
// Runs a step without any update, in fp32 (nullopt) or under autocast.
using RunTrial = std::function<Trial(std::optional<c10::ScalarType>)>;

// "fp32", "bf16", "fp16", and back; any other word means fp32.
[[nodiscard]] std::string name_of(std::optional<c10::ScalarType> format);
[[nodiscard]] std::optional<c10::ScalarType> format_of(std::string_view name);

// `auto`: a format that the hardware computes fast, confirmed by a trial: bf16 (CPU: AVX512_BF16 or AMX; CUDA: compute capability
// >= 8.0), else fp16 (CUDA: 7.0 and up), else fp32. Empty `run_trial` = no trial (the hardware alone decides).
[[nodiscard]] Decision choose(c10::Device device, const RunTrial& run_trial);
// A trial of `format` against fp32, in turns. It is chosen if it is 5 % faster, the loss is within 2 %, the gradient's norm
// within 10 % and its cosine at least .9 for every objective, no parameter's gradient is off by more than kWorstGradient in any
// round, and everything is finite. An error of LibTorch in the trial decides for fp32.
[[nodiscard]] Decision confirm(c10::ScalarType format, const RunTrial& run_trial);

[[nodiscard]] bool hardware_has_fast_bf16(c10::Device device, std::string* reason);
// The plan's remark on a requested format for which the device is slow; "" if there is no remark.
[[nodiscard]] std::string remark_on(c10::Device device, std::optional<c10::ScalarType> format);

}  // namespace millrace::precision
