// Steps that leave no trace: for choosing a run's number format, layout and kernels, for accounting its memory, and for checking
// its first batch.
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
// are as before.
class StepTrials {
 public:
  // The use of a trial step's gradients.
  enum class Role : std::uint8_t { reference, compared };

  struct RehearsedStep {
    StepResult result;
    std::vector<std::string> without_gradient;  // names of parameters that got no gradient, of the objectives that were present
  };

  // `time`: try_precision() asks it before each step, and then throws TrialsGivenUp; null = there is no limit.
  explicit StepTrials(Stepper& stepper, TrialTime* time = nullptr) : stepper_(stepper), time_(time) {}

  // Makes a forward and a backward pass at the current weights in a format. Compares the gradients, parameter by parameter, with
  // those of this object's last reference, which is a trial in fp32 unless `role` says otherwise.
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast);
  precision::Trial try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, Role role);
  // Makes one Stepper::accumulate() in which every block is watched. `with_gradients`: as in a step's second micro-step, when
  // gradients exist already.
  memory::StepProfile profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients);
  // Makes one Stepper::accumulate(). ConfigError for a name in memory.recompute that is not a block of the model;
  // RecipeError for a loss that learns through tensors which the model does not hold, see stray_leaves.h.
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
