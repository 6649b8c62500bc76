#include "millrace/optim/average.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::optim {
namespace {

at::Tensor flag(bool value) { return at::scalar_tensor(value ? 1.0 : 0.0, at::kFloat); }

struct Weights {
  at::Tensor w = at::tensor({1.0, -2.0}, at::kDouble).to(at::kFloat).set_requires_grad(true);
  at::Tensor b = at::tensor({0.5}, at::kDouble).set_requires_grad(true);
  [[nodiscard]] std::vector<ParameterGroup> groups() const { return {{.parameters = {{"w", w}}}, {.parameters = {{"b", b}}}}; }
  void set(double value) const {
    const at::NoGradGuard no_grad;
    w.fill_(value);
    b.fill_(value);
  }
};

TEST(Average, FollowsItsFormula) {
  const Weights model;
  Average average(model.groups(), 0.6);
  double expected = 0.5;
  for (int n = 0; n < 30; ++n) {
    const double value = n * 0.25;
    model.set(value);
    average.update(flag(false));
    const double decay = std::min(0.6, (1.0 + n) / (10.0 + n));
    expected += (value - expected) * (1.0 - decay);
    ASSERT_NEAR(average.weights().at("b").item<double>(), expected, 1e-12) << n;
  }
  EXPECT_EQ(average.updates().item<float>(), 30.0F);
}

TEST(Average, ASkippedStepLeavesEveryBit) {
  const Weights model;
  Average average(model.groups(), 0.9);
  model.set(3.0);
  average.update(flag(false));
  const at::Tensor before = average.weights().at("w").clone();
  model.set(7.0);
  average.update(flag(true));
  EXPECT_TRUE(at::equal(average.weights().at("w"), before));
  EXPECT_EQ(average.updates().item<float>(), 1.0F);
}

TEST(Average, IsLentToTheParametersAndTakenBack) {
  const Weights model;
  Average average(model.groups(), 0.9);
  model.set(4.0);
  {
    const AverageInUse in_use(average);
    EXPECT_TRUE(at::equal(model.w, average.weights().at("w")));
    EXPECT_EQ(model.b.item<double>(), 0.5);
    EXPECT_TRUE(model.w.requires_grad() && model.w.is_leaf());
  }
  EXPECT_EQ(model.b.item<double>(), 4.0);
  model.set(5.0);
  EXPECT_EQ(average.weights().at("b").item<double>(), 0.5) << "the memories are separate again";
}

// Each of these updates is less than half of what bf16 can tell apart near 1.
TEST(Average, OfShortWeightsFollowsSmallUpdates) {
  const at::Tensor w = at::tensor({1.0, 1.0}, at::kDouble).to(at::kBFloat16).set_requires_grad(true);
  const std::vector<ParameterGroup> groups = {{.parameters = {{"w", w}}}};
  Average average(groups, 0.999);
  average.load({{"w", w.detach()}}, at::scalar_tensor(1e6, at::kFloat));  // as a snapshot of an earlier version has it
  {
    const at::NoGradGuard no_grad;
    w.fill_(2.0);
  }
  for (int n = 0; n < 100; ++n) average.update(flag(false));
  EXPECT_NEAR(average.weights().at("w")[0].item<double>(), 2.0 - std::pow(0.999, 100), 1e-4);
  {
    const AverageInUse in_use(average);
    EXPECT_EQ(w.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(w[0].item<double>(), 1.095, 0.01);
  }
  EXPECT_EQ(w[0].item<double>(), 2.0);
}

TEST(Average, GoesOnFromWhatWasSavedAndRefusesAnythingElse) {
  const Weights a;
  const Weights b;
  Average whole(a.groups(), 0.99);
  Average resumed(b.groups(), 0.99);
  a.set(2.0);
  whole.update(flag(false));
  resumed.load(whole.weights(), whole.updates());
  a.set(-1.0);
  b.set(-1.0);
  whole.update(flag(false));
  resumed.update(flag(false));
  EXPECT_TRUE(at::equal(whole.weights().at("w"), resumed.weights().at("w")));
  const auto refusal = [&](const Tensors& weights, const at::Tensor& updates) {
    return millrace::refusal<SnapshotError>([&] { resumed.load(weights, updates); });
  };
  EXPECT_EQ(refusal({{"w", a.w.detach()}}, whole.updates()),
            "SnapshotError  the averaged weights lack b\n"
            "  where    snapshot, averaged weights\n"
            "  next     resume with the model and the optim.ema_decay of the run, or start with --fresh");
  EXPECT_THAT(refusal({{"w", a.b.detach()}, {"b", a.b.detach()}}, whole.updates()), testing::HasSubstr("w has another shape"));
  EXPECT_THAT(refusal(whole.weights(), {}), testing::HasSubstr("lack the number of updates"));
}

}  // namespace
}  // namespace millrace::optim
