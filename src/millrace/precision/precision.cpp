#include "millrace/precision/precision.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/device/device.h"
#include "millrace/device/errors.h"
#include "millrace/system/instructions.h"

namespace millrace::precision {

namespace {

constexpr std::size_t kRounds = 3;  // Rounds of a trial. In the first round, each format also sets up what it needs.
constexpr double kLossTolerance = 0.02;
constexpr double kNormTolerance = 0.10;
constexpr double kCosine = 0.9;
constexpr double kWorthIt =
    0.95;  // relative to the time in fp32: a gain within a trial's noise is not worth a narrow format's loss of precision
constexpr int kTensorCores = 7;  // first compute capability with fast fp16 products

using Trials = std::array<Trial, kRounds>;

// Returns the trials of the objective with number i.
Trials objective_of(const Trials& trials, std::size_t i) {
  Trials all;
  for (std::size_t round = 0; round < kRounds; ++round) all[round] = i == 0 ? trials[round] : trials[round].others.at(i - 1);
  return all;
}

double median(const Trials& trials, double Trial::*member) {
  std::vector<double> values;
  for (const Trial& trial : trials) values.push_back(trial.*member);
  return millrace::median(std::move(values));
}

bool all_finite(const Trials& trials) { return std::ranges::all_of(trials, is_finite); }

// The median of all values except the time, which compare_times() compares.
Trial median(const Trials& trials) {
  return {.loss = median(trials, &Trial::loss),
          .gradient_norm = median(trials, &Trial::gradient_norm),
          .gradient_cosine = median(trials, &Trial::gradient_cosine)};
}

double relative_difference(double value, double reference) {
  return value == reference ? 0.0 : std::abs(value - reference) / std::abs(reference);
}

std::string differs(const std::string& format, const std::string& what, double value, double reference, double tolerance) {
  return "fp32: " + what + " of a trial step is " + significant(value, 4) + " in " + format + " and " +
         significant(reference, 4) + " in fp32: " + percent(relative_difference(value, reference), 1) + " apart, but at most " +
         percent(tolerance) + " is allowed";
}

// Says why the trials of one objective decide for fp32; "" if both formats agree.
std::string disagreement(const std::string& format, const Trials& fp32, const Trials& narrow) {
  const std::string of = fp32[0].objective.empty() ? "" : " of " + fp32[0].objective;
  if (!all_finite(fp32)) return "fp32: a trial step" + of + " is not finite even in fp32";
  if (!all_finite(narrow)) return "fp32: a trial step" + of + " is finite in fp32 but not in " + format;
  const Trial full = median(fp32);
  const Trial half = median(narrow);
  if (relative_difference(half.loss, full.loss) > kLossTolerance)
    return differs(format, "the loss" + of, half.loss, full.loss, kLossTolerance);
  if (relative_difference(half.gradient_norm, full.gradient_norm) > kNormTolerance)
    return differs(format, "the gradient's norm" + of, half.gradient_norm, full.gradient_norm, kNormTolerance);
  // Checked before the cosine, because a message that names the parameter helps more. The worst round decides, because a
  // library's fault may show in one round and not in the next.
  if (const Trial& worst = worst_of(narrow); !(worst.worst_gradient <= kWorstGradient)) {
    return "fp32: the gradient of " + worst.worst_parameter + of + " of a trial step in " + format + " is wrong by " +
           percent(worst.worst_gradient) + " of its size in fp32, but at most " + percent(kWorstGradient) + " is allowed";
  }
  if (half.gradient_cosine >= kCosine) return "";
  return "fp32: the gradient" + of + " of a trial step in " + format +
         " points in another direction: its cosine with fp32's is " + fixed(half.gradient_cosine, 3) + ", but at least " +
         fixed(kCosine, 1) + " is required";
}

Decision judge(c10::ScalarType format, const Trials& fp32, const Trials& narrow) {
  const std::string name = name_of(format);
  std::string figures;
  for (std::size_t i = 0; i <= fp32[0].others.size(); ++i) {
    const Trials wide = objective_of(fp32, i);
    const Trials small = objective_of(narrow, i);
    if (std::string reason = disagreement(name, wide, small); !reason.empty()) return {.reason = std::move(reason)};
    const Trial full = median(wide);
    const Trial half = median(small);
    figures += "; " + (wide[0].objective.empty() ? "" : wide[0].objective + ": ") + "loss " + significant(half.loss, 5) +
               " and " + significant(full.loss, 5) + ", gradient norm " + significant(half.gradient_norm, 3) + " and " +
               significant(full.gradient_norm, 3) + ", cosine " + fixed(half.gradient_cosine, 4);
  }
  const Comparison found = compare_times(narrow, fp32);
  const std::string times = fixed(found.first_ms, 1) + " ms a step in " + name + ", " + fixed(found.second_ms, 1) + " in fp32";
  if (found.disturbed) figures += kDisturbed;
  if (!(found.first_ms < kWorthIt * found.second_ms)) {
    const std::string not_enough = found.first_ms < found.second_ms ? " less than 5 % faster: " : " no faster: ";
    return {.reason = "fp32: a trial found " + name + not_enough + times + (found.disturbed ? kDisturbed : ""),
            .by_time = !found.disturbed};
  }
  return {.autocast = format, .reason = name + ": a trial measured " + times + figures, .by_time = !found.disturbed};
}

int major_capability(c10::Device device) {
  const int index = device.has_index() ? device.index() : 0;
  return device::backend_of(device).compute_capability(index).first;
}

}  // namespace

std::string name_of(std::optional<c10::ScalarType> format) {
  if (format == c10::kBFloat16) return "bf16";
  return format == c10::kHalf ? "fp16" : "fp32";
}

std::optional<c10::ScalarType> format_of(std::string_view name) {
  if (name == "bf16") return c10::kBFloat16;
  return name == "fp16" ? std::optional(c10::kHalf) : std::nullopt;
}

bool hardware_has_fast_bf16(c10::Device device, std::string* reason) {
  const device::Backend& backend = device::backend_of(device);
  const int index = device.has_index() ? device.index() : 0;
  const bool fast = backend.has_fast_bf16(index);
  if (reason == nullptr) return fast;
  if (device.is_cpu()) {
    const char* const unit = device::cpu_info().amx_bf16 ? "AMX" : "AVX512_BF16";
    const std::string asked = asked_instructions();
    *reason = fast ? std::string("the CPU has ") + unit : "the CPU has neither AVX512_BF16 nor AMX";
    if (!fast && !asked.empty()) *reason += ", or " + asked + " hides them";
  } else {
    const auto [major, minor] = backend.compute_capability(index);
    *reason = "compute capability " + std::to_string(major) + "." + std::to_string(minor) + (fast ? "" : ", but bf16 needs 8.0");
  }
  return fast;
}

std::string remark_on(c10::Device device, std::optional<c10::ScalarType> format) {
  std::string hardware;
  if (format == c10::kBFloat16 && !hardware_has_fast_bf16(device, &hardware)) return "slow here: " + hardware;
  if (format != c10::kHalf) return "";
  if (device.is_cpu()) return "slow here: the CPU computes fp16 in fp32 and converts each value";
  return major_capability(device) < kTensorCores ? "slow here: fp16 products need compute capability 7.0" : "";
}

bool is_finite(const Trial& trial) {
  const bool is_finite_itself =
      std::isfinite(trial.loss) && std::isfinite(trial.gradient_norm) && std::isfinite(trial.worst_gradient);
  return is_finite_itself && std::ranges::all_of(trial.others, is_finite);
}

Comparison compare_times(std::span<const Trial> first, std::span<const Trial> second) {
  const auto times = [](std::span<const Trial> trials) {
    std::vector<WorkClock::Time> all;
    for (const Trial& trial : trials) all.push_back({trial.step_ms, trial.busy_ms.value_or(trial.step_ms)});
    return all;
  };
  return compare(times(first), times(second));
}

const Trial& worst_of(std::span<const Trial> rounds) { return *std::ranges::max_element(rounds, {}, &Trial::worst_gradient); }

Decision choose(c10::Device device, const RunTrial& run_trial) {
  std::string hardware;
  c10::ScalarType format = c10::kBFloat16;
  if (!hardware_has_fast_bf16(device, &hardware)) {
    if (major_capability(device) < kTensorCores) return {.reason = "fp32: " + hardware};
    format = c10::kHalf;
  }
  if (!run_trial) return {.autocast = format, .reason = name_of(format) + ": " + hardware};
  return confirm(format, run_trial);
}

Decision confirm(c10::ScalarType format, const RunTrial& run_trial) {
  Trials fp32;
  Trials narrow;
  for (std::size_t round = 0; round < kRounds; ++round) {
    fp32[round] = run_trial(std::nullopt);
    try {
      narrow[round] = run_trial(format);
    } catch (const c10::Error& error) {
      if (device::kind_of(error) != device::ErrorKind::other) throw;  // out of memory, or a lost device
      const std::string text = error.what_without_backtrace();
      return {.reason = "fp32: a trial step in " + name_of(format) + " failed: " + text.substr(0, text.find('\n'))};
    }
  }
  return judge(format, fp32, narrow);
}

}  // namespace millrace::precision
