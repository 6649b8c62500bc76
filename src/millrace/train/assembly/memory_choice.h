// Which blocks of a model are recomputed in a run, from the config and, for a budget, from trials.
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
  // {plain_bytes, plain_measured, recomputed_bytes, blocks: [{name, saved_bytes, ms}]}; with a budget also budget_bytes,
  // predicted_bytes, recompute, fits, peak_in; if the step does not fit, also micro_batches_that_fit and bytes_that_fit, unless
  // no number of micro-batches fits. Empty without trials.
  Json trial = Json::object();
};

// Problems if memory.budget, memory.limit or memory.offload is not an amount. `where` begins with the option.
[[nodiscard]] std::vector<Problem> memory_problems(const MemoryConfig& config);

// Measures with a prepared batch what `millrace estimate` shows and what a budget needs. `with_gradients`: see
// StepTrials::profile_memory. DeviceError if not even a step that recomputes everything fits.
[[nodiscard]] MemoryChoice try_memory(Stepper& stepper, const Batch& batch, const MemoryConfig& config, bool with_gradients);

// Activations of at least this many bytes are offloaded; 0 = no offloading. On a CPU turns the row of `switches` off, with the
// reason.
[[nodiscard]] std::uint64_t offload_bytes(const MemoryConfig& config, at::Device device, Switches& switches);

// The choice without a budget: the blocks that the config names.
[[nodiscard]] MemoryChoice named_memory(const MemoryConfig& config);

// Until destruction, limits the bytes of CPU tensors as memory.limit says; "auto" limits the process to what is free now.
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
