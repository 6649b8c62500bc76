#include "millrace/kernels/backward_rules.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/smooth_leaky.h"

namespace millrace::kernels {
namespace {

// The second derivatives would be wrong, because the kernels' gradients have no graph.
TEST(BackwardRules, AGradientOfAFusedOperationIsNotDifferentiatedAgain) {
  const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> operations = {
      {"a GELU", [](const at::Tensor& x) { return gelu_dropout(x, Dropout{}); }},
      {"a layer norm", [](const at::Tensor& x) { return layer_norm(x, at::ones({8}), at::zeros({8}), 1e-5); }},
      {"a smooth leaky ReLU", [](const at::Tensor& x) { return smooth_leaky(x); }},
      {"a norm, pooling or activation", [](const at::Tensor& x) { return smooth_leaky(x.to(at::kDouble)); }}};
  for (const auto& [name, operation] : operations) {
    const at::Tensor x = at::randn({4, 8}).requires_grad_();
    const at::Tensor loss = operation(x).sum();
    try {
      (void)torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      ADD_FAILURE() << name;
    } catch (const RecipeError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the gradient of " + name + " is to be differentiated again"));
      EXPECT_THAT(error.what(), testing::HasSubstr("nn::Fused::plain()"));
    }
    EXPECT_TRUE(torch::autograd::grad({loss}, {x})[0].defined()) << name;
  }
}

}  // namespace
}  // namespace millrace::kernels
