// Negative log-likelihoods of spike counts, given predicted rates, summed where a mask is 1.
#pragma once

#include <ATen/core/Tensor.h>

#include "recipes/neural_response/config.h"

namespace millrace::recipes::neural_response {

// The sum and the count of a session's loss, as fp32 scalars.
struct MaskedSum {
  at::Tensor sum, count;
  at::Tensor dropped;  // 1 if the sum was not finite; sum and count are then 0 and have no gradient
};

// The negative log-likelihood of Poisson counts, for (rows, units). ln y! is left out, because it does not depend on the rate:
//   Activation::none      e^v - y v, v = `predicted` is the logarithm of the rate
//   Activation::softplus  r - y ln(r + 1e-8), r = `predicted` is the rate
// The terms are multiplied by `mask`: 1 counts, 0 does not. Finite values where the mask is 0 change nothing, to the bit.
// Defined for any y >= 0.
[[nodiscard]] MaskedSum poisson_loss(const at::Tensor& predicted, const at::Tensor& counts, const at::Tensor& mask,
                                     Activation output);

// Like poisson_loss(), for zero-inflated Poisson counts: with probability `silent` a bin has no spikes, whatever its rate l =
// e^v is (Lambert 1992, Technometrics 34:1; without ln y!):
//   y = 0  -ln(silent + (1 - silent) e^-l);   y > 0  -ln(1 - silent) - y v + l
[[nodiscard]] MaskedSum zero_inflated_loss(const at::Tensor& log_rates, const at::Tensor& silent, const at::Tensor& counts,
                                           const at::Tensor& mask);

}  // namespace millrace::recipes::neural_response
