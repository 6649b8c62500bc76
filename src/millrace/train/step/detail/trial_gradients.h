// Compares the gradients of two trial steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "millrace/optim/optimizer.h"

namespace millrace {

struct GradientDifference {
  double cosine = 1;      // of the two gradients as wholes; 1 if there is nothing to compare
  double worst = 0;       // the largest relative error of one parameter's gradient: see below; NaN if one is not finite
  std::string parameter;  // the parameter with this error; "" if there is nothing to compare
};

// Gradients of the parameters of `groups`, in their order, undefined if a parameter has none. The error of each parameter is
//   |g - r| / max(|r|, floor * |all of r| * sqrt(elements / all elements)),
// so that a gradient of nothing but rounding, as of a bias before a batch norm, is measured against the whole gradient. Waits
// for the device.
[[nodiscard]] GradientDifference compare_gradients(const std::vector<optim::ParameterGroup>& groups,
                                                   const std::vector<at::Tensor>& gradients,
                                                   const std::vector<at::Tensor>& reference);
// Measured in bf16 against fp32 (language_model and cosmology, smoke and small, before and after training): meaningful gradients
// differ by 0.03 at most, those of nothing but rounding by 0.004 of the whole gradient's size.
inline constexpr double kGradientFloor = 0.05;

}  // namespace millrace
