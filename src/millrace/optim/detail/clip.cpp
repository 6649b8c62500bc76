#include "millrace/optim/detail/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

namespace millrace::optim::detail {

at::Tensor norm_of(const GradientLists& lists, const at::Device& device) {
  std::vector<at::Tensor> norms;
  for (const std::vector<at::Tensor>* gradients : lists) {
    if (gradients->empty()) continue;
    const auto dtype = gradients->front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(at::linalg_vector_norm(at::stack(at::_foreach_norm(*gradients, 2, dtype))).to(at::kFloat));
  }
  if (norms.empty()) return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device));
  return norms.size() == 1 ? norms.front() : at::linalg_vector_norm(at::stack(norms));
}

void scale_and_clamp(const GradientLists& lists, const at::Tensor& factor, double limit) {
  for (const std::vector<at::Tensor>* gradients : lists) {
    if (gradients->empty()) continue;
    at::_foreach_mul_(*gradients, factor);
    at::_foreach_clamp_max_(*gradients, limit);
    at::_foreach_clamp_min_(*gradients, -limit);
  }
}

at::Tensor clip_coefficient(const at::Tensor& norm, double limit) { return (norm + 1e-6).reciprocal().mul(limit).clamp_max(1.0); }

}  // namespace millrace::optim::detail
