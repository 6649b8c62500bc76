// Biases that convolutions leave to the norm behind them, as nn/residual.h has them on a device, beside LibTorch's operations.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fixture.h"
#include "millrace/base/error.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block.h"
#include "millrace/nn/residual.h"

namespace millrace::standin {
namespace {

using Numbers = std::vector<at::Tensor>;

class Biases : public Standin {
 protected:
  static void SetUpTestSuite() { memory::take_over_backward_passes(); }
};

// A convolution, a norm with what passes beside it, another convolution and its norm, then the sum of both branches, upsampled,
// and what passed beside the norm with zeros behind it, strided.
at::Tensor block(const Numbers& in, const nn::Fused& fused) {
  const nn::Biased first = nn::biased_conv3d(in[0], in[1], in[2], 1, 1, fused);
  const nn::Branched branch = nn::branched_group_norm(first, in[3], in[4], 2, 1e-6, true, fused);
  const nn::Biased second = nn::biased_conv3d(branch.normed, in[5], in[6], 1, 1, fused);
  const at::Tensor normed = nn::branched_group_norm(second, in[7], in[8], 4, 1e-6, false, fused).normed;
  EXPECT_EQ(first.bias.defined() && second.bias.defined(), nn::leaves_out_biases(in[0], fused));
  const nn::Biased up = nn::biased_upsampled_conv3d(normed + nn::whole(branch.x), in[9], in[10], fused);
  const nn::Biased down = nn::biased_conv3d(nn::zeros_behind(branch.x, fused), in[9], in[10], 2, 0, fused);
  return at::cat({nn::whole(up).flatten(), nn::whole(down).flatten()});
}

// The block's result and the gradients of all its inputs.
Numbers results(const Numbers& inputs, at::ScalarType type, const nn::Fused& fused) {
  Numbers leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
  Numbers all(1);
  {
    std::optional<device::Autocast> autocast;
    if (type != at::kFloat) autocast.emplace(at::kCUDA, type);
    all[0] = block(leaves, fused).to(at::kFloat);
  }
  const at::Tensor upstream = at::arange(all[0].numel()).mul(0.7).sin().view(all[0].sizes()).to(kGpu);
  (all[0] * upstream).sum().backward();
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  for (at::Tensor& one : all) one = one.detach().cpu();
  return all;
}

TEST_F(Biases, AreLeftToTheNormWithTheSameResultsAndGradients) {
  at::manual_seed(51);
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      Numbers inputs = {at::randn({2, 3, 4, 5, 6}).contiguous(layout)};
      for (const auto& [out, in] : {std::pair{8, 3}, {8, 8}}) {
        for (const at::Tensor& more : {at::randn({out, in, 3, 3, 3}) / 5, at::randn({out}), at::randn({out}), at::randn({out})})
          inputs.push_back(more);
      }
      inputs.push_back(at::randn({4, 8, 3, 3, 3}) / 5), inputs.push_back(at::randn({4}));
      for (at::Tensor& input : inputs) input = input.to(kGpu);
      const nn::Fused unfused = nn::Fused::without({nn::kFusedGroupNorm});
      const Numbers exact = results(inputs, at::kFloat, unfused), plain = results(inputs, type, unfused);
      const Numbers ours = results(inputs, type, {});
      const double tolerance = type == at::kFloat ? 2e-5 : type == at::kHalf ? std::ldexp(1.0, -8) : std::ldexp(1.0, -5);
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const double size = std::max(1.0, exact[i].abs().max().item<double>());
        const auto error = [&](const Numbers& of) { return (of[i] - exact[i]).abs().max().item<double>() / size; };
        EXPECT_LE(error(ours), std::max(tolerance, 2 * error(plain))) << type << " " << layout << ", " << i;
        EXPECT_EQ(ours[i].scalar_type(), plain[i].scalar_type());
      }
    }
  }
}

// Without a gradient of the norm's own result, and without one of x beside it.
TEST_F(Biases, ABranchThatNobodyReadsHasNoGradient) {
  const Numbers values = {at::randn({2, 4, 3, 4, 5}).to(kGpu), at::randn({4}).to(kGpu), at::randn({4}).to(kGpu),
                          at::randn({4}).to(kGpu)};
  const auto gradients = [&](bool of_normed, bool of_x) {
    Numbers leaves;
    for (const at::Tensor& value : values) leaves.push_back(value.detach().requires_grad_());
    const nn::Branched both = nn::branched_group_norm({leaves[0], leaves[1]}, leaves[2], leaves[3], 2, 1e-6, true, {});
    at::Tensor sum;
    if (of_normed) sum = both.normed.square().sum();
    if (of_x) sum = sum.defined() ? sum + (both.x.x * 3).sum() : (both.x.x * 3).sum();
    sum.backward();
    Numbers all;
    for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad().defined() ? leaf.grad().cpu() : at::Tensor());
    return all;
  };
  const Numbers norm = gradients(true, false), beside = gradients(false, true), both = gradients(true, true);
  EXPECT_LE((both[0] - norm[0] - 3).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(beside[0].min().item<double>(), 3);
  EXPECT_EQ(beside[0].max().item<double>(), 3);
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_FALSE(beside[i].defined()) << i;
    EXPECT_TRUE(both[i].equal(norm[i])) << i;
  }
}

TEST_F(Biases, GroupsThatDoNotDivideTheChannelsAreRefused) {
  const at::Tensor x = at::randn({2, 4, 3, 4, 5}).to(kGpu), four = at::randn({4}).to(kGpu), three = at::randn({3}).to(kGpu);
  EXPECT_THROW((void)nn::branched_group_norm({x, four}, four, four, 3, 1e-6, true, {}), InternalError);
  EXPECT_THROW((void)nn::branched_group_norm({x, four}, three, three, 2, 1e-6, true, {}), InternalError);
}

}  // namespace
}  // namespace millrace::standin
