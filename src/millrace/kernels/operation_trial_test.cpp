#include "millrace/kernels/operation_trial.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/kernels/detail/test_support.h"

namespace millrace::kernels {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;

class WaysTest : public ::testing::Test {
 protected:
  WaysTest() { forget_implementations(); }
  ~WaysTest() override { forget_implementations(); }

  static void choose_products(Implementation way) {
    for (const Operation operation : {Operation::product, Operation::input_gradient, Operation::weight_gradient})
      choose_implementation(operation, at::kFloat, way);
  }
  // Outputs and gradients of a linear layer, forward and backward.
  static Tensors layer(at::ScalarType type) {
    at::manual_seed(7);
    const at::Tensor x = at::randn({40, 24}).to(type).requires_grad_();
    const at::Tensor weight = at::randn({16, 24}).requires_grad_();
    const at::Tensor bias = at::randn({16}).requires_grad_();
    const at::Tensor y = linear(x, weight, bias);
    y.sin().sum().backward();
    return {y, x.grad(), weight.grad(), bias.grad()};
  }
};

TEST_F(WaysTest, UntilItIsChosenAWayIsByTheOperation) {
  EXPECT_EQ(implementation_of(Operation::product, at::kFloat), Implementation::library);
  EXPECT_EQ(implementation_of(Operation::weight_gradient, at::kBFloat16), Implementation::ours);
  EXPECT_EQ(implementation_of(Operation::attention, at::kFloat), Implementation::ours);
  choose_implementation(Operation::weight_gradient, at::kBFloat16, Implementation::library);
  EXPECT_EQ(implementation_of(Operation::weight_gradient, at::kBFloat16), Implementation::library);
  EXPECT_EQ(implementation_of(Operation::weight_gradient, at::kFloat), Implementation::library) << "each number format by itself";
  EXPECT_EQ(implementation_of(Operation::attention, at::kBFloat16), Implementation::ours);
}

TEST_F(WaysTest, BothWaysOfALayerAgree) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    choose_products(Implementation::ours);
    choose_implementation(Operation::weight_gradient, at::kBFloat16, Implementation::ours);
    const Tensors ours = layer(type);
    choose_products(Implementation::library);
    choose_implementation(Operation::weight_gradient, at::kBFloat16, Implementation::library);
    const Tensors library = layer(type);
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(relative_error(ours[i], library[i]), type == at::kFloat ? 1e-5 : 2e-2) << i;
    EXPECT_EQ(library[2].scalar_type(), at::kFloat);
    EXPECT_FALSE(equal_bits(ours[2], library[2])) << "the comparison must be able to fail";
  }
}

TEST_F(WaysTest, ATrialTimesEachShapeOnceAndCountsItsCalls) {
  const OperationTrial trial;
  layer(at::kFloat);
  layer(at::kFloat);
  layer(at::kBFloat16);
  const std::vector<OperationTrial::Times> times = trial.times();
  ASSERT_EQ(times.size(), 4U);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const bool bf16 = times[i].type == at::kBFloat16;
    EXPECT_EQ(times[i].calls, bf16 ? 1 : 2);
    EXPECT_EQ(times[i].work, (bf16 ? 1 : 2) * 40.0 * 24 * 16);
    EXPECT_GT(times[i].ours_ms, 0);
    EXPECT_GT(times[i].library_ms, 0);
  }
  const KnownTimes measured = trial.measured();
  EXPECT_THAT(measured, Contains(Key("product f32 40x24x16")));
  EXPECT_THAT(measured, Contains(Key("weight_gradient bf16 16x40x24")));
  EXPECT_EQ(measured.size(), 4U);
}

TEST_F(WaysTest, ATrialChangesNoResult) {
  const Tensors alone = layer(at::kFloat);
  Tensors tried;
  {
    const OperationTrial trial;
    tried = layer(at::kFloat);
  }
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_LT(relative_error(tried[i], alone[i]), 1e-5);
}

TEST_F(WaysTest, KnownTimesAreNotMeasuredAgain) {
  const OperationTrial trial({{"product f32 40x24x16", {3, 5, false}}});
  layer(at::kFloat);
  EXPECT_EQ(trial.times().front().ours_ms, 3);
  EXPECT_EQ(trial.times().front().library_ms, 5);
  EXPECT_FALSE(trial.measured().contains("product f32 40x24x16"));
  EXPECT_EQ(trial.measured().size(), 2U);
}

TEST_F(WaysTest, AfterItsTimeATrialOnlyCounts) {
  const OperationTrial trial({{"product f32 40x24x16", {3, 5, false}}}, 0);
  layer(at::kFloat);
  const std::vector<OperationTrial::Times> times = trial.times();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_FALSE(times[0].given_up) << "known before";
  EXPECT_TRUE(times[1].given_up);
  EXPECT_TRUE(times[2].given_up);
  EXPECT_EQ(times[2].calls, 1);
  EXPECT_THAT(trial.measured(), IsEmpty());
}

TEST_F(WaysTest, WhatOnlyCountsTimesNothing) {
  choose_products(Implementation::ours);
  const OperationTrial trial(OperationTrial::Counts::only);
  layer(at::kFloat);
  EXPECT_EQ(trial.times().size(), 3U);
  EXPECT_EQ(trial.times().front().calls, 1);
  EXPECT_THAT(trial.measured(), IsEmpty());
}

TEST_F(WaysTest, WhoKeepsResultsSeesThatTheWayChanged) {
  choose_implementation(Operation::product, at::kFloat, Implementation::ours);
  const std::uint64_t before = implementation_changes();
  choose_implementation(Operation::product, at::kFloat, Implementation::ours);
  EXPECT_EQ(implementation_changes(), before);
  choose_implementation(Operation::product, at::kFloat, Implementation::library);
  EXPECT_NE(implementation_changes(), before);
}

TEST_F(WaysTest, WithoutATrialNothingIsCalledTwice) {
  int calls = 0;
  const auto count = [&] { ++calls; };
  EXPECT_TRUE(takes_ours({Operation::attention, at::kFloat, {1, 2}, 1e12}, count, count));
  EXPECT_EQ(calls, 0);
}

TEST_F(WaysTest, AnErrorInATrialEndsItsTiming) {
  const OperationTrial trial;
  const auto fails = [] { throw std::runtime_error("no memory"); };
  EXPECT_THROW((void)takes_ours({Operation::attention, at::kFloat, {1, 2}, 1}, fails, fails), std::runtime_error);
  EXPECT_TRUE(operation_trial_runs());
}

}  // namespace
}  // namespace millrace::kernels
