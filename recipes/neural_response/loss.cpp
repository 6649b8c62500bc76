#include "recipes/neural_response/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace millrace::recipes::neural_response {
namespace {

constexpr double kFloor = 1e-8;

// Sums `terms` of the predictions. A sum that is not finite becomes 0 and does not count; the device decides this. where()
// passes no gradient to the side that it does not select.
template <class Terms>
MaskedSum masked(const at::Tensor& predicted, const at::Tensor& mask, const Terms& terms) {
  const at::Tensor v = predicted.to(at::kFloat);
  const at::Tensor weights = mask.to(at::kFloat);
  const at::Tensor fine = at::isfinite((terms(v.detach()) * weights).sum());
  const at::Tensor used = at::where(fine, v, at::ones_like(v));
  const at::Tensor count = weights.sum();
  const at::Tensor none = at::zeros_like(count);
  return {.sum = at::where(fine, (terms(used) * weights).sum(), none),
          .count = at::where(fine, count, none),
          .dropped = fine.logical_not().to(at::kFloat)};
}

}  // namespace

MaskedSum poisson_loss(const at::Tensor& predicted, const at::Tensor& counts, const at::Tensor& mask, Activation output) {
  return masked(predicted, mask, [y = counts.to(at::kFloat), output](const at::Tensor& x) {
    return output == Activation::none ? x.exp() - y * x : x - y * (x + kFloor).log();
  });
}

MaskedSum zero_inflated_loss(const at::Tensor& log_rates, const at::Tensor& silent, const at::Tensor& counts,
                             const at::Tensor& mask) {
  return masked(log_rates, mask, [y = counts.to(at::kFloat), pi = silent.to(at::kFloat)](const at::Tensor& v) {
    const at::Tensor rate = v.exp();
    const at::Tensor none = -(pi + (1 - pi) * (-rate).exp()).log();
    return at::where(y.eq(0), none, rate - y * v - at::log1p(-pi));
  });
}

}  // namespace millrace::recipes::neural_response
