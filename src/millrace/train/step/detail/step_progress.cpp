#include "millrace/train/step/detail/step_progress.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace millrace {

void StepProgress::restore(ObjectiveStep& objective) const {
  *objective.sums_ = sums_;
  for (std::size_t i = 0; i < gradients_.size(); ++i) objective.parameters_[i].mutable_grad() = gradients_[i];
}

at::Tensor StepProgress::gradient_size(const ObjectiveStep& objective) {
  std::vector<at::Tensor> gradients;
  const auto add = [&](const at::Tensor& gradient) {
    if (gradient.defined()) gradients.push_back(gradient);
  };
  for (const at::Tensor& parameter : objective.parameters_) add(parameter.grad());
  for (const ObjectiveStep::Pass& pass : objective.sums_->passes) std::ranges::for_each(pass.gradients, add);
  const std::vector<at::Tensor> norms = gradients.empty() ? std::vector<at::Tensor>() : at::_foreach_norm(gradients, 2);
  at::Tensor squares = at::zeros_like(objective.norm_);
  for (const at::Tensor& norm : norms) squares = squares + norm.to(at::kFloat).square();
  return squares.sqrt();
}

}  // namespace millrace
