// `millrace bench step`: one training step on synthetic input, timed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/train/recipe/entry.h"

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
  StepBench(const Entry& entry, const StepBenchOptions& options);  // the batch is made, on the device; no step is done yet
  ~StepBench();
  double step();  // one step, the loss read at its end; milliseconds
  // Milliseconds of each of so many steps. On a device one follows the other without a wait, as in a run: the times are between
  // the ends that the device itself has noted, and the call returns when the last has ended. Others may share the device: memory
  // that no tensor needs between calls goes back to it, and a step that is not timed takes it again. On a CPU as step().
  std::vector<double> steps(std::int64_t count);
  [[nodiscard]] Json report(const std::vector<double>& ms) const;  // of these steps
 private:
  struct Impl;
  void begin_step();
  std::unique_ptr<Impl> impl_;
  StepBenchOptions options_;
};

// What a step of the shape would compute with: {recipe, shape, parameters, trained_parameters, batch: [{field: sizes} of each
// group], device, device_name}. No step is done.
[[nodiscard]] Json describe_step(const Entry& entry, const StepBenchOptions& options);

// What describe_step says, and {precision, steps, ms: [...], ms_p50, ms_min, first_step_s_since_process_start, peak_memory_bytes,
// loss_first, loss_last, memory: {step_peak_bytes (of tensors), resident_before_bytes, recompute, and with a budget what
// try_memory says}, kernels: {option: {way, reason}} of those that a trial chose, layout ("" = not tried), format, tf32: {on,
// reason}, switches, ...}
[[nodiscard]] Json bench_step(const Entry& entry, const StepBenchOptions& options);

}  // namespace millrace
