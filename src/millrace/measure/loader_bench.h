// `millrace bench loader` measures the speed of a loader: alone, next to a step that uses the cores, or in a run of a recipe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "millrace/data/workload/workload.h"
#include "millrace/train/run/run.h"

namespace millrace {

// A stand-in for a training step that shares the cores with a loader: a convolution (8 x 64 x 56 x 56 with 64 x 64 x 3 x 3,
// fp32), computed `passes` times on all threads.
class ConvolutionStep {
 public:
  explicit ConvolutionStep(std::int64_t passes);
  // Returns a step that takes about `milliseconds`; measures how many passes such a step needs.
  [[nodiscard]] static ConvolutionStep for_milliseconds(double milliseconds);
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

// Samples per second of `consume` if it gets batches that were read before. A step would have this speed if reading cost
// nothing.
[[nodiscard]] double replayed_rate(const data::Pipeline& pipeline, data::LoaderOptions options, double seconds,
                                   const std::function<void(data::HostBatch)>& consume);

struct LoaderBenchOptions {
  double seconds = 3;
  double step_ms = 0;  // 0 = no step
  bool digest = true;  // true: reads another epoch, without measuring its time, for the digest
};

// Returns {kind, samples_per_s, first_batch_ms, turn_round_ms_p50, cpu_s_per_1000, wait_ms_p50, wait_ms_p99, peak_memory_bytes,
// digest, readers, reason, cache, ...}. With a step also ceiling_samples_per_s, the speed of the same step with batches that were
// read before.
[[nodiscard]] Json bench_workload(const data::Workload& workload, const std::filesystem::path& folder,
                                  const LoaderBenchOptions& options);

// Compares a recipe's loader with its step and its run: {loader_samples_per_s, step_samples_per_s, run_samples_per_s, bound,
// verdict, ...}. Writes no run folder.
[[nodiscard]] Json bench_recipe_loader(RunRequest request, double seconds);

}  // namespace millrace
