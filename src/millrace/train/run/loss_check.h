// Checks that a loss is a sum and a count: the result must not change if a batch is cut or if its rows are reversed.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/step/stepper.h"

namespace millrace {

struct LossCheck {
  std::vector<std::string> unchecked;  // what was not checked and why, a line each
  // A line for each output whose rows depend on the other rows of their batch, and for each loss that draws random numbers.
  std::vector<std::string> warnings;
};

// A line for each output whose rows depend on other rows of the batch, and for each loss that draws random numbers.
[[nodiscard]] LossCheck check_adds_up(Stepper& stepper, const Batch& batch, const StepResult& whole);

}  // namespace millrace
