// Gradients of two trial steps against each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "millrace/optim/optimizer.h"

namespace millrace {

struct GradientDifference {
  double cosine = 1;      // of the two gradients as wholes; 1 where there is nothing to compare
  double worst = 0;       // the largest relative error of one parameter's gradient: see below; NaN when one is not finite
  std::string parameter;  // whose; "" where there is nothing to compare
};

// Of the parameters of `groups`, in their order, undefined where a parameter has none. Of each parameter
//   |g - r| / max(|r|, floor * |all of r| * sqrt(elements / all elements)),
// so that a gradient that is nothing but rounding, as of a bias before a batch norm, is measured against the whole one. Waits
// for the device.
[[nodiscard]] GradientDifference compare_gradients(const std::vector<optim::ParameterGroup>& groups,
                                                   const std::vector<at::Tensor>& gradients,
                                                   const std::vector<at::Tensor>& reference);
// Measured in bf16 against fp32 (language_model and cosmology, smoke and small, before and after training): gradients that mean
// something are off by 0.03 at most, those that are nothing but rounding by 0.004 of the whole one's size.
inline constexpr double kGradientFloor = 0.05;

}  // namespace millrace
