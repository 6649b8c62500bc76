// `millrace bench loader`: a loader's speed, alone, before a step that occupies cores, or in a recipe's run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "millrace/data/workload/workload.h"
#include "millrace/train/run/run.h"

namespace millrace {

// A step that only convolves (8 x 64 x 56 x 56 with 64 x 64 x 3 x 3, fp32, `passes` times) on all intra-op threads: it stands for
// the work that a loader shares its cores with.
class ConvolutionStep {
 public:
  explicit ConvolutionStep(std::int64_t passes);
  [[nodiscard]] static ConvolutionStep for_milliseconds(double milliseconds);  // measures how many passes that takes
  ConvolutionStep(const ConvolutionStep&) = delete;
  ConvolutionStep& operator=(const ConvolutionStep&) = delete;
  ~ConvolutionStep();
  void operator()();
  [[nodiscard]] std::int64_t passes() const noexcept { return passes_; }

 private:
  struct Tensors;
  std::unique_ptr<Tensors> tensors_;
  std::int64_t passes_ = 1;
};

// Samples per second of `consume`, fed with a few batches read before: a step's speed if reading cost nothing.
[[nodiscard]] double replayed_rate(const data::Pipeline& pipeline, data::LoaderOptions options, double seconds,
                                   const std::function<void(data::HostBatch)>& consume);

struct LoaderBenchOptions {
  double seconds = 3;
  double step_ms = 0;  // 0 = no step
  bool digest = true;  // reads one more epoch, not timed, for the digest
};

// {kind, samples_per_s, first_batch_ms, turn_round_ms_p50, cpu_s_per_1000, wait_ms_p50, wait_ms_p99, peak_memory_bytes, digest,
// readers, reason, cache, ...}; with a step also ceiling_samples_per_s: the rate of the same step on replayed batches.
[[nodiscard]] Json bench_workload(const data::Workload& workload, const std::filesystem::path& folder,
                                  const LoaderBenchOptions& options);

// The comparison of a recipe's loader with its step and run: {loader_samples_per_s, step_samples_per_s, run_samples_per_s, bound,
// verdict, ...}. Writes no run folder.
[[nodiscard]] Json bench_recipe_loader(RunRequest request, double seconds);

}  // namespace millrace
