#include "millrace/precision/precision.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/device/device.h"

namespace millrace::precision {

namespace {

constexpr int kRounds = 3;  // a median of three also forgives the first step of each format, which sets things up
constexpr double kLossTolerance = 0.02;
constexpr double kNormTolerance = 0.10;

using Trials = std::array<Trial, kRounds>;

double median(const Trials& trials, double Trial::*member) {
  std::array<double, kRounds> values{};
  std::transform(trials.begin(), trials.end(), values.begin(), [member](const Trial& trial) { return trial.*member; });
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

bool all_finite(const Trials& trials) {
  return std::all_of(trials.begin(), trials.end(),
                     [](const Trial& trial) { return std::isfinite(trial.loss) && std::isfinite(trial.gradient_norm); });
}

Trial median(const Trials& trials) {
  return {.step_ms = median(trials, &Trial::step_ms),
          .loss = median(trials, &Trial::loss),
          .gradient_norm = median(trials, &Trial::gradient_norm)};
}

double relative_difference(double value, double reference) {
  return value == reference ? 0.0 : std::abs(value - reference) / std::abs(reference);
}

std::string differs(const char* what, double value, double reference, double tolerance) {
  return std::string("fp32: ") + what + " of a trial step is " + significant(value, 4) + " in bf16, " +
         significant(reference, 4) + " in fp32; " + percent(relative_difference(value, reference), 1) + " apart, at most " +
         percent(tolerance) + " is allowed";
}

Decision judge(const Trials& fp32, const Trials& bf16) {
  if (!all_finite(fp32)) return {.reason = "fp32: a trial step is not finite even in fp32"};
  if (!all_finite(bf16)) return {.reason = "fp32: a trial step is finite, the same in bf16 is not"};
  const Trial full = median(fp32);
  const Trial half = median(bf16);
  if (relative_difference(half.loss, full.loss) > kLossTolerance) {
    return {.reason = differs("the loss", half.loss, full.loss, kLossTolerance)};
  }
  if (relative_difference(half.gradient_norm, full.gradient_norm) > kNormTolerance) {
    return {.reason = differs("the gradient's norm", half.gradient_norm, full.gradient_norm, kNormTolerance)};
  }
  const std::string times = fixed(half.step_ms, 1) + " ms a step in bf16, " + fixed(full.step_ms, 1) + " in fp32";
  if (!(half.step_ms < full.step_ms)) return {.reason = "fp32: a trial found bf16 no faster: " + times};
  return {.autocast = c10::kBFloat16,
          .reason = "bf16: a trial measured " + times + "; loss " + significant(half.loss, 5) + " and " +
                    significant(full.loss, 5) + ", gradient norm " + significant(half.gradient_norm, 3) + " and " +
                    significant(full.gradient_norm, 3)};
}

}  // namespace

bool hardware_has_fast_bf16(c10::Device device, std::string* reason) {
  const device::Backend& backend = device::backend_of(device);
  const int index = device.has_index() ? device.index() : 0;
  const bool fast = backend.has_fast_bf16(index);
  if (reason == nullptr) return fast;
  if (device.is_cpu()) {
    const char* const unit = device::cpu_info().amx_bf16 ? "AMX" : "AVX512_BF16";
    *reason = fast ? std::string("the CPU has ") + unit : "the CPU has neither AVX512_BF16 nor AMX";
  } else {
    const auto [major, minor] = backend.compute_capability(index);
    *reason = "compute capability " + std::to_string(major) + "." + std::to_string(minor) + (fast ? "" : ", bf16 needs 8.0");
  }
  return fast;
}

Decision choose(c10::Device device, const std::function<Trial(std::optional<c10::ScalarType>)>& run_trial) {
  std::string hardware;
  if (!hardware_has_fast_bf16(device, &hardware)) return {.reason = "fp32: " + hardware};
  if (!run_trial) return {.autocast = c10::kBFloat16, .reason = "bf16: " + hardware};
  Trials fp32;
  Trials bf16;
  for (std::size_t round = 0; round < kRounds; ++round) {
    fp32[round] = run_trial(std::nullopt);
    bf16[round] = run_trial(c10::kBFloat16);
  }
  return judge(fp32, bf16);
}

}  // namespace millrace::precision
