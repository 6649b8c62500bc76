#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "millrace/kernels/detail/test_support.h"
#include "millrace/kernels/operation_trial.h"

namespace millrace::kernels {

double relative_error(const at::Tensor& a, const at::Tensor& b, double floor) {
  if (!a.sizes().equals(b.sizes())) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0.0;
  const at::Tensor x = a.detach().to(at::kDouble);
  const at::Tensor y = b.detach().to(at::kDouble);
  if (!x.isfinite().all().item<bool>()) return std::numeric_limits<double>::infinity();
  const double scale = y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() / std::max(scale, floor);
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a.detach(), b.detach());
}

at::Tensor strided_randn(at::IntArrayRef sizes, at::ScalarType type) {
  std::vector<std::int64_t> wide = sizes.vec();
  wide.insert(wide.end() - 1, 2);
  return at::randn(wide, at::kFloat).to(type).select(static_cast<std::int64_t>(wide.size()) - 2, 1);
}

void expect_agreement(const Function& kernel, const Function& reference, const Tensors& inputs, double tolerance, bool strided) {
  // Ignores rounding errors where the exact value is zero; the inputs are of magnitude 1.
  const double floor = tolerance > 1e-3 ? 0.1 : 1e-6;
  Tensors ours;
  Tensors theirs;
  for (const at::Tensor& input : inputs) {
    const bool floating = input.is_floating_point();
    ours.push_back(floating ? input.detach().requires_grad_() : input);
    theirs.push_back(floating ? input.detach().to(at::kDouble).requires_grad_() : input);
  }
  const Tensors out = kernel(ours);
  const Tensors expected = reference(theirs);
  ASSERT_EQ(out.size(), expected.size());
  at::Tensor sum = at::zeros({}, at::kDouble);
  at::Tensor expected_sum = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_LT(relative_error(out[i], expected[i], floor), tolerance) << "output " << i;
    if (!out[i].requires_grad() || out[i].dim() == 0) continue;
    const at::Tensor gradient = strided ? strided_randn(out[i].sizes(), at::kFloat) : at::randn(out[i].sizes(), at::kFloat);
    const at::Tensor rounded = gradient.to(out[i].scalar_type());
    sum = sum + (out[i].to(at::kDouble) * rounded.to(at::kDouble)).sum();
    expected_sum = expected_sum + (expected[i] * rounded.to(at::kDouble)).sum();
    if (strided && out.size() == 1) {
      out[i].backward(rounded);
      expected[i].backward(rounded.to(at::kDouble));
    }
  }
  if (!strided || out.size() > 1) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].dim() != 0 || !out[i].requires_grad()) continue;
      sum = sum + out[i].to(at::kDouble) * 0.5;
      expected_sum = expected_sum + expected[i].to(at::kDouble) * 0.5;
    }
    sum.backward();
    expected_sum.backward();
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].is_floating_point() || !theirs[i].grad().defined()) continue;
    ASSERT_TRUE(ours[i].grad().defined()) << "input " << i;
    EXPECT_EQ(ours[i].grad().scalar_type(), ours[i].scalar_type());
    EXPECT_LT(relative_error(ours[i].grad(), theirs[i].grad(), floor), tolerance) << "gradient of input " << i;
  }
}

void EachTable::SetUp() {
  detail::set_table(GetParam());
  for (std::size_t i = 0; i < kOperations; ++i) {
    choose_implementation(static_cast<Operation>(i), at::kFloat, Implementation::ours);
    choose_implementation(static_cast<Operation>(i), at::kBFloat16, Implementation::ours);
  }
  at::manual_seed(7);
}
void EachTable::TearDown() {
  detail::set_table(nullptr);
  forget_implementations();
}

}  // namespace millrace::kernels
