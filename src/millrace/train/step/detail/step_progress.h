// The sums and gradients of a step so far, from the micro-batches that have run. Only step_graph.cpp includes this file.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/train/step/detail/step_sums.h"

namespace millrace {

// The progress of one objective; refers to the objective's own tensors.
class StepProgress {
 public:
  explicit StepProgress(const ObjectiveStep& objective) : sums_(*objective.sums_) {
    for (const at::Tensor& parameter : objective.parameters_) gradients_.push_back(parameter.grad());
  }
  void restore(ObjectiveStep& objective) const;  // sets the objective back to this progress
  // The norm of an objective's present gradients: a scalar on the device.
  [[nodiscard]] static at::Tensor gradient_size(const ObjectiveStep& objective);

 private:
  ObjectiveStep::Sums sums_;
  std::vector<at::Tensor> gradients_;  // one for each parameter; undefined = no gradient
};

}  // namespace millrace
