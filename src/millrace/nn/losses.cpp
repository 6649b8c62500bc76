#include "millrace/nn/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "millrace/base/error.h"

namespace millrace::nn {
namespace {

at::Tensor difference(const at::Tensor& predicted, const at::Tensor& target) {
  if (predicted.sizes() != target.sizes()) {
    throw RecipeError({"a prediction and its target have different shapes: " + to_text(Tensors{{"predicted", predicted}}) + ", " +
                           to_text(Tensors{{"target", target}}),
                       "", "bring both to one shape, e.g. with unsqueeze(1) or squeeze(1) in prepare()"});
  }
  return predicted.to(at::kFloat) - target.to(at::kFloat);
}

// In an empty batch the count is 0, but the nominal count must be positive.
LossTerm term_of(const at::Tensor& values) {
  const auto count = static_cast<double>(values.numel());
  return {.sum = values.sum(),
          .count = at::full({}, count, values.options()),
          .nominal_count = std::max(count, 1.0),
          .per_row = true};
}

}  // namespace

LossTerm mean_squared_error(const at::Tensor& predicted, const at::Tensor& target) {
  return term_of(difference(predicted, target).square());
}

LossTerm mean_absolute_error(const at::Tensor& predicted, const at::Tensor& target) {
  return term_of(difference(predicted, target).abs());
}

}  // namespace millrace::nn
