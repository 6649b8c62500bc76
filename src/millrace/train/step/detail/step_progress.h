// What the micro-batches of a step have left so far: for step_graph.cpp only.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/train/step/detail/step_sums.h"

namespace millrace {

// Sums and gradients of one objective; refers to the same tensors.
class StepProgress {
 public:
  explicit StepProgress(const ObjectiveStep& objective) : sums_(*objective.sums_) {
    for (const at::Tensor& parameter : objective.parameters_) gradients_.push_back(parameter.grad());
  }
  void restore(ObjectiveStep& objective) const;  // the objective goes on from here
  // The norm of an objective's gradients so far, as they are: a scalar on the device.
  [[nodiscard]] static at::Tensor gradient_size(const ObjectiveStep& objective);

 private:
  ObjectiveStep::Sums sums_;
  std::vector<at::Tensor> gradients_;  // by parameter; undefined = no gradient
};

}  // namespace millrace
