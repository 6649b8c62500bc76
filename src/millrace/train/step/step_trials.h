// Steps that leave no trace. They serve to choose a run's number format, layout and kernels, to account for its memory, and to
// check its first batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/memory/profile.h"
#include "millrace/precision/precision.h"
#include "millrace/system/work_clock.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/step/trial_time.h"

namespace millrace {

// Used between two steps, by the loop's thread. Batches must be prepared. After each call weights, gradients, buffers and counts
// are the same as before.
class StepTrials {
 public:
  // What the gradients of a trial step are used for.
  enum class Role : std::uint8_t { reference, compared };

  struct RehearsedStep {
    StepResult result;
    std::vector<std::string> without_gradient;  // names of parameters that got no gradient although their objective took part
    std::vector<std::string> in_no_objective;   // parameters of the model that require a gradient and that no objective trains
  };

  // `time`: a limit that try_precision() checks before each step; it throws TrialsGivenUp if the time is over. Null = there is
  // no limit.
  explicit StepTrials(Stepper& stepper, TrialTime* time = nullptr) : stepper_(stepper), time_(time) {}

  // Runs a forward and a backward pass with the present weights in this number format. Compares the gradients, parameter by
  // parameter, with those of this object's last reference. A trial in fp32 is a reference unless `role` says otherwise.
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast);
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, Role role);
  // Runs one Stepper::accumulate() and watches every block. `with_gradients`: gradients exist already, as in a step's second
  // micro-step.
  memory::StepProfile profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients);
  // Runs one Stepper::accumulate(). Throws ConfigError if memory.recompute names something that is not a block of the model.
  // Throws RecipeError if the loss learns through tensors that the model does not hold (stray_leaves.h).
  RehearsedStep rehearse(const Batch& batch);

 private:
  template <class Run>
  auto without_trace(const Run& run);
  precision::Trial try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale, Role role);
  std::vector<precision::Trial> try_objectives(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                               Role role);
  precision::Trial try_objective(std::size_t i, const Loss& loss, double scale, Role role, WorkClock& clock);

  Stepper& stepper_;
  TrialTime* time_;
  std::vector<std::vector<at::Tensor>> reference_;  // gradients of the last reference, by objective
};

}  // namespace millrace
