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
  // {plain_bytes, plain_measured, recomputed_bytes, blocks: [{name, saved_bytes, ms}], and with a budget budget_bytes,
  // predicted_bytes, recompute, fits, peak_in; if it does not fit also micro_batches_that_fit and bytes_that_fit, if some number
  // does}; empty without trials.
  Json trial = Json::object();
};

// Problems if memory.budget, memory.limit or memory.offload is not an amount. `where` begins with the option.
[[nodiscard]] std::vector<Problem> memory_problems(const MemoryConfig& config);

// Trials with a prepared batch, as estimate shows them and the budget needs them. `with_gradients`: see
// StepTrials::profile_memory. DeviceError if not even a step that recomputes everything fits.
[[nodiscard]] MemoryChoice try_memory(Stepper& stepper, const Batch& batch, const MemoryConfig& config, bool with_gradients);

// Activations of at least this many bytes are offloaded; 0 = no offloading. Refuses the row on a CPU, with the reason.
[[nodiscard]] std::uint64_t offload_bytes(const MemoryConfig& config, at::Device device, Switches& switches);

// Without a budget: what the config names.
[[nodiscard]] MemoryChoice named_memory(const MemoryConfig& config);

// Limits the bytes of CPU tensors as memory.limit says, until destruction; "auto" limits the process to what is free now.
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
