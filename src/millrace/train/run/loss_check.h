// Checks that a loss is a sum and a count: the result must not change if a batch is cut or if its rows are in another order.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/step/stepper.h"

namespace millrace {

struct LossCheck {
  std::vector<std::string> unchecked;  // what was not checked and why, a line each
  // A line for each output whose rows depend on the other rows of the batch, and for each loss that draws random numbers.
  std::vector<std::string> warnings;
};

// Computes the loss of a prepared batch again, in evaluation mode: of its two halves, and of its rows in reverse order. `whole`
// is evaluate()'s result for the batch. The sums and counts of the halves must add up to those of `whole`, and those of the
// reversed batch must equal them: counts to 1e-4 of their value, sums to 2e-3, or to 3e-2 if the stepper computes in 16 bits.
// Outputs with a row for each row of the batch are compared row by row, to 2e-3 of the largest value, or to 1e-1 in 16 bits.
// Throws RecipeError, with the numbers, if a loss does not add up. Not checked are objectives with a reason in
// Objective::whole_batch, a batch of one row, a batch with a field of more or fewer rows, and a loss that draws random numbers.
// Costs two forward passes.
[[nodiscard]] LossCheck check_adds_up(Stepper& stepper, const Batch& batch, const StepResult& whole);

}  // namespace millrace
