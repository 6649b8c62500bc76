// `millrace bench step`: one training step on synthetic input, timed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/train/recipe/entry.h"

namespace millrace {

// Runs step by step, for benches that alternate it with a peer.
class StepBench {
 public:
  struct Options {
    std::string shape = "cpu-small";
    std::string precision = "auto";  // fp32 | bf16 | fp16
    std::int64_t threads = 2;
    std::int64_t steps = 9;
    std::int64_t warmup = 3;
    std::vector<std::string> off;
    Agreement* agreement = nullptr;   // of ranks that step together; null = one process
    Json overrides = Json::object();  // dotted keys over the shape's config, e.g. {"recipe.model_dropout": 0}
  };

  StepBench(const Entry& entry, const Options& options);  // makes the batch on the device; does no step yet
  ~StepBench();
  double step();  // one step, including reading its loss; milliseconds
  // Runs `count` steps and returns the milliseconds of each. On a device steps follow each other without a wait, as in a run:
  // times are between step ends recorded by the device, and the call returns when the last has ended. Since others may share the
  // device, memory that no tensor needs is released between calls, and an untimed step acquires it again. On a CPU same as
  // step().
  std::vector<double> steps(std::int64_t count);
  // Kineto's trace of `count` more steps: see train/watch/trace.h.
  [[nodiscard]] std::string trace(std::int64_t count);
  [[nodiscard]] Json report(const std::vector<double>& ms) const;  // report of these steps
 private:
  struct Impl;
  void begin_step();
  std::unique_ptr<Impl> impl_;
  Options options_;
};

// The input of a step of the shape: {recipe, shape, parameters, trained_parameters, batch: [{field: sizes} of each group],
// device, device_name}. Does no step.
[[nodiscard]] Json describe_step(const Entry& entry, const StepBench::Options& options);

// The result of describe_step, and {precision, steps, ms: [...], ms_p50, ms_min, first_step_s_since_process_start,
// peak_memory_bytes, loss_first, loss_last, memory: {step_peak_bytes (of tensors), resident_before_bytes, recompute, and with a
// budget the result of try_memory}, kernels: {option: {way, reason}} of those that a trial chose, layout ("" = not tried),
// format, tf32: {on, reason}, step_graph: {taken, reason} or null, switches, ...}
// `trace`: where the trace of three more steps is written; empty: no trace.
[[nodiscard]] Json bench_step(const Entry& entry, const StepBench::Options& options, const std::filesystem::path& trace = {});

}  // namespace millrace
