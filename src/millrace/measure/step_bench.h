// `millrace bench step`: one training step on synthetic input, timed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/train/entry.h"

namespace millrace {

struct StepBenchOptions {
  std::string shape = "cpu-small";
  std::string precision = "auto";  // fp32 | bf16 | fp16
  std::int64_t threads = 2;
  std::int64_t steps = 9;
  std::int64_t warmup = 3;
  std::vector<std::string> off;
  Agreement* agreement = nullptr;   // of the ranks that step together; null = one process
  Json overrides = Json::object();  // dotted keys over the shape's config, e.g. {"recipe.model_dropout": 0}
};
// Step by step, for benches that interleave it with a peer.
class StepBench {
 public:
  StepBench(const Entry& entry, const StepBenchOptions& options);  // the batch is made; no step is done yet
  ~StepBench();
  double step();                                                   // one step, the loss read at its end; milliseconds
  [[nodiscard]] Json report(const std::vector<double>& ms) const;  // of these steps
 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  StepBenchOptions options_;
};

// {recipe, shape, precision, steps, ms: [...], ms_p50, ms_min, first_step_s_since_process_start, peak_memory_bytes, loss_first,
// loss_last, memory: {step_peak_bytes (of tensors), resident_before_bytes, recompute, and with a budget what try_memory says},
// kernels: {option: {way, reason}} of those that a trial chose, layout ("" = not tried), format, switches, ...}
[[nodiscard]] Json bench_step(const Entry& entry, const StepBenchOptions& options);

}  // namespace millrace
