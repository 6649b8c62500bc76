#include "millrace/nn/losses.h"

#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"

namespace millrace::nn {
namespace {

TEST(RegressionLoss, IsLibTorchsMeanInValueAndGradient) {
  for (const bool squared : {true, false}) {
    const at::Tensor target = at::randn({6, 3});
    const at::Tensor ours = at::randn({6, 3}).set_requires_grad(true);
    const at::Tensor theirs = ours.detach().clone().set_requires_grad(true);
    const LossTerm term = squared ? mean_squared_error(ours, target) : mean_absolute_error(ours, target);
    const at::Tensor mean = term.sum / term.count;
    const at::Tensor expected = squared ? at::mse_loss(theirs, target) : at::l1_loss(theirs, target);
    EXPECT_NEAR(mean.item<double>(), expected.item<double>(), 1e-6);
    mean.backward();
    expected.backward();
    EXPECT_LE((ours.grad() - theirs.grad()).abs().max().item<double>(), 1e-6);
    EXPECT_EQ(term.nominal_count, 18.0);
  }
}

TEST(RegressionLoss, ShapesThatWouldBroadcastAreShown) {
  try {
    (void)mean_squared_error(at::zeros({4, 1}), at::zeros({4}));
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.message().what, "a prediction and its target have different shapes: predicted f32 [4,1], target f32 [4]");
  }
}

TEST(RegressionLoss, ABatchWithoutRowsCountsNothing) {
  const LossTerm term = mean_squared_error(at::zeros({0, 2}), at::zeros({0, 2}));
  EXPECT_EQ(term.count.item<double>(), 0.0);
  EXPECT_EQ(term.sum.item<double>(), 0.0);
  EXPECT_GT(term.nominal_count, 0.0);
}

}  // namespace
}  // namespace millrace::nn
