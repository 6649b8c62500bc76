#include "millrace/kernels/ways.h"

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
  WaysTest() { forget_ways(); }
  ~WaysTest() override { forget_ways(); }

  static void choose_products(Way way) {
    for (const Operation operation : {Operation::product, Operation::input_gradient, Operation::weight_gradient})
      choose_way(operation, at::kFloat, way);
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
  EXPECT_EQ(way_of(Operation::product, at::kFloat), Way::library);
  EXPECT_EQ(way_of(Operation::weight_gradient, at::kBFloat16), Way::ours);
  EXPECT_EQ(way_of(Operation::attention, at::kFloat), Way::ours);
  choose_way(Operation::weight_gradient, at::kBFloat16, Way::library);
  EXPECT_EQ(way_of(Operation::weight_gradient, at::kBFloat16), Way::library);
  EXPECT_EQ(way_of(Operation::weight_gradient, at::kFloat), Way::library) << "each number format by itself";
  EXPECT_EQ(way_of(Operation::attention, at::kBFloat16), Way::ours);
}

TEST_F(WaysTest, BothWaysOfALayerAgree) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    choose_products(Way::ours);
    choose_way(Operation::weight_gradient, at::kBFloat16, Way::ours);
    const Tensors ours = layer(type);
    choose_products(Way::library);
    choose_way(Operation::weight_gradient, at::kBFloat16, Way::library);
    const Tensors library = layer(type);
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_LT(relative_error(ours[i], library[i]), type == at::kFloat ? 1e-5 : 2e-2) << i;
    EXPECT_EQ(library[2].scalar_type(), at::kFloat);
    EXPECT_FALSE(equal_bits(ours[2], library[2])) << "the comparison must be able to fail";
  }
}

TEST_F(WaysTest, ATrialTimesEachShapeOnceAndCountsItsCalls) {
  const WayTrial trial;
  layer(at::kFloat);
  layer(at::kFloat);
  layer(at::kBFloat16);
  const std::vector<WayTimes> times = trial.times();
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
    const WayTrial trial;
    tried = layer(at::kFloat);
  }
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_LT(relative_error(tried[i], alone[i]), 1e-5);
}

TEST_F(WaysTest, KnownTimesAreNotMeasuredAgain) {
  const WayTrial trial({{"product f32 40x24x16", {3, 5, false}}});
  layer(at::kFloat);
  EXPECT_EQ(trial.times().front().ours_ms, 3);
  EXPECT_EQ(trial.times().front().library_ms, 5);
  EXPECT_FALSE(trial.measured().contains("product f32 40x24x16"));
  EXPECT_EQ(trial.measured().size(), 2U);
}

TEST_F(WaysTest, WhatOnlyCountsTimesNothing) {
  choose_products(Way::ours);
  const WayTrial trial(WayTrial::Counts::only);
  layer(at::kFloat);
  EXPECT_EQ(trial.times().size(), 3U);
  EXPECT_EQ(trial.times().front().calls, 1);
  EXPECT_THAT(trial.measured(), IsEmpty());
}

TEST_F(WaysTest, WhoKeepsResultsSeesThatTheWayChanged) {
  choose_way(Operation::product, at::kFloat, Way::ours);
  const std::uint64_t before = ways_so_far();
  choose_way(Operation::product, at::kFloat, Way::ours);
  EXPECT_EQ(ways_so_far(), before);
  choose_way(Operation::product, at::kFloat, Way::library);
  EXPECT_NE(ways_so_far(), before);
}

TEST_F(WaysTest, WithoutATrialNothingIsCalledTwice) {
  int calls = 0;
  const auto count = [&] { ++calls; };
  EXPECT_TRUE(goes_our_way({Operation::attention, at::kFloat, {1, 2}, 1e12}, count, count));
  EXPECT_EQ(calls, 0);
}

TEST_F(WaysTest, AnErrorInATrialEndsItsTiming) {
  const WayTrial trial;
  const auto fails = [] { throw std::runtime_error("no memory"); };
  EXPECT_THROW((void)goes_our_way({Operation::attention, at::kFloat, {1, 2}, 1}, fails, fails), std::runtime_error);
  EXPECT_TRUE(way_trial_runs());
}

}  // namespace
}  // namespace millrace::kernels
