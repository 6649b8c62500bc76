// Compares the gradients of two trial steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "millrace/optim/optimizer.h"

namespace millrace {

struct GradientDifference {
  double cosine = 1;      // cosine between the two whole gradients; 1 if there are no gradients
  double worst = 0;       // the largest relative error of a parameter's gradient, defined below; NaN if a gradient is not finite
  std::string parameter;  // the parameter with this error; "" if there are no gradients
};

// Compares gradients g with references r. Both are in the order of the parameters of `groups`, and undefined if a parameter has
// no gradient. The error of each parameter is
//   |g - r| / max(|r|, floor * |all of r| * sqrt(elements / all elements)).
// So a gradient that is only rounding, such as that of a bias before a batch norm, is measured against the whole gradient. Waits
// for the device.
[[nodiscard]] GradientDifference compare_gradients(const std::vector<optim::ParameterGroup>& groups,
                                                   const std::vector<at::Tensor>& gradients,
                                                   const std::vector<at::Tensor>& reference);
// Measured in bf16 against fp32 (language_model and cosmology, smoke and small, before and after training): gradients that are
// more than rounding differ by at most 0.03. Gradients that are only rounding differ by at most 0.004 of the whole gradient's
// size.
inline constexpr double kGradientFloor = 0.05;

}  // namespace millrace
