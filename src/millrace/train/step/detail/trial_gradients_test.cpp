#include "millrace/train/step/detail/trial_gradients.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<optim::ParameterGroup> two_parameter_groups() {
  return {{.parameters = {{"conv.weight", at::zeros({8, 4})}, {"conv.bias", at::zeros({8})}}},
          {.parameters = {{"head.weight", at::zeros({2, 16})}}}};
}

TEST(TrialGradients, EachParameterIsComparedByItself) {
  const std::vector<at::Tensor> reference = {at::full({8, 4}, 1.0), at::full({8}, 2.0), at::full({2, 16}, 1.0)};
  auto gradients = reference;
  GradientDifference same = compare_gradients(two_parameter_groups(), gradients, reference);
  EXPECT_EQ(same.worst, 0);
  EXPECT_NEAR(same.cosine, 1, 1e-12);
  gradients[2] = reference[2] * 1.5;
  const GradientDifference one = compare_gradients(two_parameter_groups(), gradients, reference);
  EXPECT_NEAR(one.worst, 0.5, 1e-6);
  EXPECT_EQ(one.parameter, "head.weight");
  EXPECT_GT(one.cosine, 0.95) << "which the whole gradient does not show";
}

TEST(TrialGradients, RoundingOfAGradientThatIsZeroIsMeasuredAgainstTheWhole) {
  const std::vector<at::Tensor> reference = {at::full({8, 4}, 1.0), at::full({8}, 1e-7), at::full({2, 16}, 1.0)};
  auto gradients = reference;
  gradients[1] = at::full({8}, -4e-3);
  EXPECT_LT(compare_gradients(two_parameter_groups(), gradients, reference).worst, 0.1);
  gradients[1] = at::full({8}, 0.5);
  EXPECT_GT(compare_gradients(two_parameter_groups(), gradients, reference).worst, 1);
}

TEST(TrialGradients, WhatIsNotFiniteIsWorst) {
  const std::vector<at::Tensor> reference = {at::full({8, 4}, 1.0), at::full({8}, 2.0), at::full({2, 16}, 1.0)};
  auto gradients = reference;
  gradients[0] = reference[0] * 100;
  gradients[1] = at::full({8}, kNan);
  const GradientDifference difference = compare_gradients(two_parameter_groups(), gradients, reference);
  EXPECT_TRUE(std::isnan(difference.worst));
  EXPECT_EQ(difference.parameter, "conv.bias");
}

TEST(TrialGradients, ParametersWithoutAGradientAreLeftOut) {
  const std::vector<at::Tensor> reference = {at::full({8, 4}, 1.0), at::Tensor(), at::full({2, 16}, 1.0)};
  EXPECT_EQ(compare_gradients(two_parameter_groups(), {at::full({8, 4}, 1.0), at::full({8}, 9.0), at::Tensor()}, reference).worst,
            0);
  EXPECT_EQ(compare_gradients(two_parameter_groups(), {}, reference).parameter, "");
}

}  // namespace
}  // namespace millrace
