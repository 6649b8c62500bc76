// Losses of a regression, as terms: the trainer divides a term's sum by its count over the global batch of a step.
//
//   objective.loss = [this](const Batch& batch, const StepContext&) {
//     const at::Tensor predicted = model_->forward(batch["x"]);
//     return Loss{.terms = {nn::mean_squared_error(predicted, batch["y"])}, .outputs = {{"predicted", predicted}}};
//   };
//
// cross_entropy.h has the loss of a classifier.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/core/batch.h"

namespace millrace::nn {

// The sum of (predicted - target)^2 over all values, computed in fp32, for any float types. Throws RecipeError with both shapes
// unless they are equal, because broadcasting [n,1] against [n] would compare each value with all others.
[[nodiscard]] LossTerm mean_squared_error(const at::Tensor& predicted, const at::Tensor& target);
// The sum of |predicted - target|; for the rest see mean_squared_error().
[[nodiscard]] LossTerm mean_absolute_error(const at::Tensor& predicted, const at::Tensor& target);

}  // namespace millrace::nn
