// Checks that a loss is a sum and a count: the result must not change if a batch is cut or if its rows are in another order.
#pragma once

#include <string>
#include <vector>

#include "millrace/train/step/stepper.h"

namespace millrace {

// Computes the loss of a prepared batch again in evaluation mode: for its two halves, and with its rows in reverse order. The
// sums and counts of the halves must add up to those of `whole`, which is evaluate()'s result for the batch; those of the
// reversed batch must be equal to it. Tolerances: counts 1e-4, sums 2e-3, or 3e-2 if the stepper computes in 16 bits, relative to
// the value. Costs two forward passes. Throws RecipeError with the numbers if a loss does not add up. Returns a line for each
// loss that was not checked, with the reason: a text in Objective::whole_batch, a batch of one row, a field with more or fewer
// rows than the batch, a loss that draws random numbers.
[[nodiscard]] std::vector<std::string> check_adds_up(Stepper& stepper, const Batch& batch, const StepResult& whole);

}  // namespace millrace
