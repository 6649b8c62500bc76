// Steps that leave no trace: what number format, layout and kernels a run takes, what its memory goes to, and whether its first
// batch is right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/memory/profile.h"
#include "millrace/precision/precision.h"
#include "millrace/system/work_clock.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// What the gradients of a trial step are for.
enum class TrialRole : std::uint8_t { reference, compared };

struct RehearsedStep {
  StepResult result;
  std::vector<std::string> without_gradient;  // names of parameters that got none, of the objectives that were present
};

// Used between two steps, by the loop's thread. Batches are prepared ones. After each call weights, gradients, buffers and counts
// are what they were.
class StepTrials {
 public:
  explicit StepTrials(Stepper& stepper) : stepper_(stepper) {}

  // Forward and backward at the current weights in a format. Gradients are compared, parameter by parameter, with those of the
  // last reference of this object: of a trial in fp32, unless `role` says.
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast);
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, TrialRole role);
  // One Stepper::accumulate() with every block watched. `with_gradients`: as in a step's second micro-step, when gradients are
  // there already.
  memory::StepProfile profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients);
  // One Stepper::accumulate(). ConfigError for a block in memory.recompute that the model does not have.
  RehearsedStep rehearse(const Batch& batch);

 private:
  template <class Run>
  auto without_trace(const Run& run);
  precision::Trial try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale, TrialRole role);
  std::vector<precision::Trial> try_objectives(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                               TrialRole role);
  precision::Trial try_objective(std::size_t i, const Loss& loss, double scale, TrialRole role, WorkClock& clock);

  Stepper& stepper_;
  std::vector<std::vector<at::Tensor>> reference_;  // gradients of the last reference, by objective
};

}  // namespace millrace
