// Which number format a run computes in, and why.
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

// What a trial of one step in a format measured.
struct Trial {
  double step_ms = 0;
  double loss = 0;
  double gradient_norm = 0;
  double gradient_cosine = 1;          // between this gradient and the one of the fp32 trial before it
  std::string objective = {};          // "" where there is one
  std::vector<Trial> others = {};      // of a step of several objectives the rest; each must agree, step_ms is the whole step's
  double worst_gradient = 0;           // the largest relative error of one parameter's gradient against that trial's
  std::string worst_parameter = {};    // whose
  std::optional<double> busy_ms = {};  // of step_ms, what the busiest thread was on a core; nullopt: all, or on a device
};
// Time of trials in turns, for system/work_clock.h.
[[nodiscard]] Comparison compare_times(std::span<const Trial> first, std::span<const Trial> second);
inline constexpr double kWorstGradient = 0.25;     // an order above what bf16 does; what goes wrong in a library does more
[[nodiscard]] bool is_finite(const Trial& trial);  // loss and gradients, of every objective
[[nodiscard]] const Trial& worst_of(std::span<const Trial> rounds);  // the one whose worst gradient is the worst; not empty
// Runs a step without updating anything, in fp32 (nullopt) or under autocast.
using RunTrial = std::function<Trial(std::optional<c10::ScalarType>)>;

// "fp32", "bf16", "fp16", and back; a word that is none of them is fp32.
[[nodiscard]] std::string name_of(std::optional<c10::ScalarType> format);
[[nodiscard]] std::optional<c10::ScalarType> format_of(std::string_view name);

// `auto`: what the hardware does well, confirmed by a trial: bf16 (CPU: AVX512_BF16 or AMX; CUDA: compute capability >= 8.0),
// else fp16 (CUDA: 7.0 and up), else fp32. Empty `run_trial` = no trial (the hardware alone decides).
[[nodiscard]] Decision choose(c10::Device device, const RunTrial& run_trial);
// A trial of `format` against fp32, alternating: taken when it is 5 % faster, the loss is within 2 %, the gradient's norm within
// 10
// %, its cosine at least .9, of every objective, no parameter's gradient is further off than kWorstGradient in any round, and all
// is finite. An error of LibTorch in it decides for fp32.
[[nodiscard]] Decision confirm(c10::ScalarType format, const RunTrial& run_trial);

[[nodiscard]] bool hardware_has_fast_bf16(c10::Device device, std::string* reason);
// What the plan says of a format that was asked for on a device that is slow at it; "" when there is nothing to say.
[[nodiscard]] std::string remark_on(c10::Device device, std::optional<c10::ScalarType> format);

}  // namespace millrace::precision
