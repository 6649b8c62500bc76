// Chooses the number format in which a run computes, with the reason.
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
  // True if the times decided: a trial found both formats accurate, and no other program used the cores.
  bool by_time = false;
};

// Measurements of one trial step in a format.
struct Trial {
  double step_ms = 0;
  double loss = 0;
  double gradient_norm = 0;
  double gradient_cosine = 1;  // cosine between this gradient and that of the previous fp32 trial
  std::string objective = {};  // "" if the step has one objective
  // The same measurements for the other objectives of the step; a format is chosen only if it passes for each objective. step_ms
  // is the time of the whole step.
  std::vector<Trial> others = {};
  double worst_gradient = 0;         // the largest relative error of a parameter's gradient against that gradient in the
                                     // previous fp32 trial
  std::string worst_parameter = {};  // the parameter with that error
  std::optional<double> busy_ms =
      {};  // part of step_ms that the busiest thread spent on a core; nullopt: all of step_ms, or the step ran on a device
};
// Compares the times of trials of two formats. The trials took turns (system/work_clock.h).
[[nodiscard]] Comparison compare_times(std::span<const Trial> first, std::span<const Trial> second);
inline constexpr double kWorstGradient = 0.25;     // ten times bf16's usual error; faults of a library give larger errors
[[nodiscard]] bool is_finite(const Trial& trial);  // true if loss and gradients of every objective are finite
// The round with the worst gradient; `rounds` must not be empty.
[[nodiscard]] const Trial& worst_of(std::span<const Trial> rounds);
// Runs a step without any update, in fp32 (nullopt) or under autocast.
using RunTrial = std::function<Trial(std::optional<c10::ScalarType>)>;

// Converts between formats and the words "fp32", "bf16" and "fp16". Any other word means fp32.
[[nodiscard]] std::string name_of(std::optional<c10::ScalarType> format);
[[nodiscard]] std::optional<c10::ScalarType> format_of(std::string_view name);

// `auto`: the fastest format that the hardware computes well, confirmed by a trial. The candidates, best first, are bf16 (CPU:
// AVX512_BF16 or AMX; CUDA: compute capability 8.0 and up), fp16 (CUDA: 7.0 and up) and fp32. With an empty `run_trial` only the
// hardware decides.
[[nodiscard]] Decision choose(c10::Device device, const RunTrial& run_trial);
// Compares `format` with fp32 in trials that take turns. `format` is chosen if all of this holds: it is 5 % faster; the loss
// differs by at most 2 % and the gradient's norm by at most 10 %; the gradient's cosine is at least .9 for every objective; no
// parameter's gradient is off by more than kWorstGradient in any round; all values are finite. If LibTorch throws an error in the
// trial, the choice is fp32.
[[nodiscard]] Decision confirm(c10::ScalarType format, const RunTrial& run_trial);

[[nodiscard]] bool hardware_has_fast_bf16(c10::Device device, std::string* reason);
// The plan's remark if the device is slow in the requested format; "" otherwise.
[[nodiscard]] std::string remark_on(c10::Device device, std::optional<c10::ScalarType> format);

}  // namespace millrace::precision
