// The blocks of a model that are recomputed in the backward pass: chosen by the config or, for memory.budget, by trials.
#pragma once

#include <string>

#include "millrace/memory/planner.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {

struct MemoryChoice {
  memory::Recompute recompute;
  std::string value;  // for the plan: "layer1, layer2"
  std::string reason;
  // Results of the trial: {plain_bytes, plain_measured, recomputed_bytes, blocks: [{name, saved_bytes, ms}], predicted_bytes,
  // recompute, peak_in}. With a budget also budget_bytes, extra_ms and fits. If the step does not fit but fits in micro-batches,
  // also micro_batches_that_fit and bytes_that_fit. Empty without a trial.
  Json trial = Json::object();
};

// The problems of memory.budget, memory.limit and memory.offload, such as a text that is not an amount of memory. Each problem's
// `where` begins with the option.
[[nodiscard]] std::vector<Problem> memory_problems(const MemoryConfig& config);

// Measures, with a prepared batch, the memory that `millrace estimate` shows and that memory.budget needs. `with_gradients`: see
// StepTrials::profile_memory. Throws DeviceError if a step does not fit even if it recomputes every block.
[[nodiscard]] MemoryChoice try_memory(Stepper& stepper, const Batch& batch, const MemoryConfig& config, bool with_gradients);

// The size from which an activation is offloaded to host memory; 0 = no offloading. On a CPU this turns the row "offload" of
// `switches` off, with the reason.
[[nodiscard]] std::uint64_t offload_bytes(const MemoryConfig& config, at::Device device, Switches& switches);

// The choice without memory.budget: the blocks that the config names.
[[nodiscard]] MemoryChoice named_memory(const MemoryConfig& config);

// Until destruction, limits the bytes of CPU tensors as memory.limit says. "auto" limits the process to the memory that is free
// now.
class MemoryLimit {
 public:
  explicit MemoryLimit(const std::string& limit);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  std::uint64_t outer_;
  std::uint64_t outer_resident_;
};

}  // namespace millrace
