#include "millrace/nn/clamp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>

namespace millrace::nn {
namespace {

TEST(Clamp, IsLibTorchsAndCountsWhatIsAtItsBordersWhereGradientsAre) {
  const at::Tensor x = at::linspace(-2, 2, 5).set_requires_grad(true);
  EXPECT_TRUE(at::equal(clamp(x, -1, 1, "x"), x.clamp(-1, 1)));
  EXPECT_TRUE(clamp_counts().empty()) << "nobody asked";
  count_clamps(true);
  clamp(x, -1, 1, "x").sum().backward();
  const at::Tensor twin = x.detach().clone().set_requires_grad(true);
  twin.clamp(-1, 1).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), twin.grad())) << "LibTorch decides about a value at a border: 1 in 2.11, 0 in 2.15";
  EXPECT_EQ(x.grad()[0].item<float>(), 0) << "a value beyond a border";
  EXPECT_EQ(x.grad()[2].item<float>(), 1) << "a value between the borders";
  (void)clamp(x, -10, 10, "wide");
  {
    const at::NoGradGuard validation;
    (void)clamp(x, -1, 1, "x");
  }
  const std::vector<ClampCount> counts = clamp_counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].name, "x");
  EXPECT_EQ(counts[0].values, 5);
  EXPECT_EQ(counts[0].at_border, 4);
  EXPECT_EQ(counts[1].at_border, 0);
  count_clamps(false);
  EXPECT_TRUE(clamp_counts().empty());
}

}  // namespace
}  // namespace millrace::nn
