// `millrace bench step`: measures the time of a training step on synthetic input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/train/recipe/entry.h"

namespace millrace {

// Makes steps one at a time, for benchmarks that alternate between Millrace and another program.
class StepBench {
 public:
  struct Options {
    std::string shape = "cpu-small";
    std::string precision = "auto";  // fp32 | bf16 | fp16
    std::int64_t threads = 2;
    std::int64_t steps = 9;
    std::int64_t warmup = 3;
    std::vector<std::string> off;
    Agreement* agreement = nullptr;   // connects ranks that step together; null = one process
    Json overrides = Json::object();  // values that override the shape's config, by dotted key: {"recipe.model_dropout": 0}
  };

  StepBench(const Entry& entry, const Options& options);  // makes the batch on the device, but no step
  ~StepBench();
  double step();  // makes a step, reads its loss and returns the milliseconds
  // Makes `count` steps and returns the milliseconds of each. On a GPU, steps follow each other without a wait, as in a run. The
  // GPU records when each step ends, and the time of a step is the difference of two ends. The call returns when the last step
  // has ended. Memory that no tensor needs is released between calls, because other programs may use the same GPU. An extra
  // step, which is not measured, allocates this memory again. On a CPU this repeats step().
  std::vector<double> steps(std::int64_t count);
  // The trace of `count` more steps: see train/watch/trace.h.
  [[nodiscard]] std::string trace(std::int64_t count);
  [[nodiscard]] Json report(const std::vector<double>& ms) const;  // the report about steps that took these milliseconds
 private:
  struct Impl;
  void begin_step();
  std::unique_ptr<Impl> impl_;
  Options options_;
};

// Describes a step of the shape without making it: {recipe, shape, parameters, trained_parameters, batch: [{field: sizes} of each
// group], device, device_name}.
[[nodiscard]] Json describe_step(const Entry& entry, const StepBench::Options& options);

// Returns the members of describe_step() and {precision, steps, ms: [...], ms_p50, ms_min, first_step_s_since_process_start,
// peak_memory_bytes, loss_first, loss_last, memory: {step_peak_bytes (of tensors), resident_before_bytes, recompute, and with a
// budget the result of try_memory}, kernels: {option: {way, reason}} of those that a trial chose, layout ("" = not tried),
// format, tf32: {on, reason}, step_graph: {taken, reason} or null, switches, ...}
// `trace`: the file for the trace of three more steps; empty: no trace.
[[nodiscard]] Json bench_step(const Entry& entry, const StepBench::Options& options, const std::filesystem::path& trace = {});

}  // namespace millrace
