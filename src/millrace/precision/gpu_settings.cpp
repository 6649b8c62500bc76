#include "millrace/precision/gpu_settings.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/kernels/attention_draws.h"

namespace millrace::precision {
namespace {

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";
constexpr const char* kFixedWorkspace =
    ":4096:8";  // if several streams work, cuBLAS repeats its bits only with a workspace of fixed size

void fix_workspace() {
  ::setenv(kWorkspace, kFixedWorkspace, /*replace=*/0);
  const std::string_view set = std::getenv(kWorkspace);
  if (set == kFixedWorkspace || set == ":16:8") return;
  throw ConfigError({"train.deterministic needs matrix products that repeat their bits, but " + std::string(kWorkspace) + "=" +
                         std::string(set) + " allows products that do not",
                     std::string(kWorkspace) + " in the environment",
                     "unset this variable, or set it to " + std::string(kFixedWorkspace) + " or :16:8"});
}

}  // namespace

GpuSettings choose_gpu_settings(bool deterministic, std::optional<bool> timed, c10::Device device) {
  if (device.is_cpu()) {
    return {.deterministic_reason =
                deterministic
                    ? "a CPU computes the same bits in all runs with the same seed and thread count, with or without this key"
                    : "",
            .convolutions_reason = timed ? "without effect: only GPUs use cuDNN" : ""};
  }
  GpuSettings settings{.deterministic = deterministic, .timed_convolutions = !deterministic && timed.value_or(true)};
  settings.deterministic_reason = deterministic
                                      ? "every operation adds in a fixed order; an operation that can't do so is an error"
                                      : "atomic additions come in another order each time, so runs with the same seed agree only "
                                        "up to rounding; with train.deterministic=true they agree to the bit";
  if (deterministic) {
    settings.convolutions_reason = "a timing may choose another algorithm in each run, which train.deterministic forbids";
  } else if (!timed) {
    settings.convolutions_reason =
        "cuDNN times its algorithms once for each shape, because shapes are few and each is computed in every step";
  }
  return settings;
}

void use_gpu_settings(const GpuSettings& settings, c10::Device device) {
  if (device.is_cpu()) return;
  if (settings.deterministic) fix_workspace();
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(settings.deterministic, /*warn_only=*/false);
  // Not needed, because each of Millrace's kernels writes its whole result.
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(settings.deterministic);
  context.setBenchmarkCuDNN(settings.timed_convolutions);
  kernels::set_counted_attention(settings.deterministic);
}

}  // namespace millrace::precision
