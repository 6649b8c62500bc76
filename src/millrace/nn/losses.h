// Losses of a regression, as terms: the trainer divides a sum by its count over the global batch of a step.
//
//   objective.loss = [this](const Batch& batch, const StepContext&) {
//     const at::Tensor predicted = model_->forward(batch["x"]);
//     return Loss{.terms = {nn::mean_squared_error(predicted, batch["y"])}, .outputs = {{"predicted", predicted}}};
//   };
//
// The loss of a classifier is in cross_entropy.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/core/batch.h"

namespace millrace::nn {

// The sum of (predicted - target)^2 over all values. Computed in fp32; any float types. Both have the same shape, else
// RecipeError with both shapes: broadcasting [n,1] against [n] would compare each value with all others.
[[nodiscard]] LossTerm mean_squared_error(const at::Tensor& predicted, const at::Tensor& target);
// The sum of |predicted - target|, in the same way.
[[nodiscard]] LossTerm mean_absolute_error(const at::Tensor& predicted, const at::Tensor& target);

}  // namespace millrace::nn
