// Tests the functions of residual autoencoders: both paths of each against its formula, types under autocast, counts.
#include "millrace/nn/residual.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "millrace/device/autocast.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/telemetry/spans.h"

namespace millrace::nn {
namespace {

const Fused kUnfused = Fused::without({kFusedGroupNorm, kPhasedUpsampling, kVoxelProducts});
const auto kWays = {Fused{}, kUnfused};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(Residual, NormsAreTheirFormulas) {
  const at::Tensor x = at::randn({2, 6, 3, 4, 5}, at::kDouble) * 3 + 1;
  const at::Tensor weight = at::randn({6}, at::kDouble), bias = at::randn({6}, at::kDouble);
  const auto normed = [&](const at::Tensor& rows, double eps) {
    const at::Tensor mean = rows.mean({-1}, true);
    return (rows - mean) / ((rows - mean).square().mean({-1}, true) + eps).sqrt();
  };
  const at::Tensor h = normed(x.view({2, 3, -1}), 1e-6).view_as(x) * weight.view({6, 1, 1, 1}) + bias.view({6, 1, 1, 1});
  const at::Tensor instance = normed(x.view({2, 6, -1}), 1e-5).view_as(x);
  const at::Tensor leaky = instance.clamp_min(0.0) + instance.clamp_max(0.0) * 0.2;
  for (const Fused& fused : kWays) {
    EXPECT_LE(distance(group_norm(x, weight, bias, 3, 1e-6, true, fused), h * h.sigmoid()), 1e-12);  // in fp64 plain paths run
    EXPECT_LE(distance(group_norm(x, weight, bias, 3, 1e-6, false, fused), h), 1e-12);
    EXPECT_LE(distance(instance_norm_leaky(x, 1e-5, 0.2, fused), leaky), 1e-12);
    const auto f32 = [](const at::Tensor& value) { return value.to(at::kFloat); };
    EXPECT_LE(distance(group_norm(f32(x), f32(weight), f32(bias), 3, 1e-6, true, fused), h * h.sigmoid()), 1e-5);
    EXPECT_LE(distance(instance_norm_leaky(f32(x), 1e-5, 0.2, fused), leaky), 1e-5);
  }
}

TEST(Residual, UpsamplingRepeatsVoxels) {
  const at::Tensor x = at::randn({1, 2, 3, 2, 4}, at::kDouble), weight = at::randn({3, 2, 3, 3, 3}, at::kDouble);
  const at::Tensor bias = at::randn({3}, at::kDouble);
  const auto voxel = [&](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) {
    const bool inside = d >= 0 && h >= 0 && w >= 0 && d < 6 && h < 4 && w < 8;
    return inside ? x[0][c][d / 2][h / 2][w / 2].item<double>() : 0.0;
  };
  for (const Fused& fused : kWays) {
    const at::Tensor y = upsampled_conv3d(x, weight, bias, fused);
    for (const auto& [d, h, w] : std::vector<std::array<std::int64_t, 3>>{{0, 0, 0}, {3, 2, 5}, {5, 3, 7}, {2, 1, 0}}) {
      double expected = bias[1].item<double>();
      for (std::int64_t i = 0; i < 54; ++i) {
        const std::int64_t c = i / 27, a = i / 9 % 3, b = i / 3 % 3, k = i % 3;
        expected += weight[1][c][a][b][k].item<double>() * voxel(c, d + a - 1, h + b - 1, w + k - 1);
      }
      EXPECT_NEAR(y[0][1][d][h][w].item<double>(), expected, 1e-12);
    }
  }
}

TEST(Residual, UnderAutocastResultsAreForAConvolution) {
  const device::Autocast autocast(at::kCPU, at::kBFloat16);
  const at::Tensor weight = at::randn({4}), bias = at::randn({4});
  const at::Tensor kernel = at::randn({4, 4, 3, 3, 3}).requires_grad_();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({1, 4, 2, 3, 4}).to(type);
    for (const Fused& fused : kWays) {
      EXPECT_EQ(group_norm(x, weight, bias, 2, 1e-6, true, fused).scalar_type(), at::kBFloat16);
      EXPECT_EQ(instance_norm_leaky(x, 1e-5, 0.2, fused).scalar_type(), at::kBFloat16);
      EXPECT_EQ(upsampled_conv3d(x, kernel, bias, fused).scalar_type(), at::kBFloat16);
    }
    const at::Tensor ours = upsampled_conv3d(x, kernel, bias, {});
    EXPECT_LE(distance(ours, upsampled_conv3d(x, kernel, bias, kUnfused)), 0.02 * ours.abs().max().item<double>());
  }
}

// oneDNN's bf16 convolutions with a stride are wrong if the last axis ends in one voxel. The guard must also cover Millrace's own
// calls.
TEST(Residual, UpsamplingOfNarrowVolumesIsGuarded) {
  (void)device::guard_convolutions();
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
    const at::Tensor values = at::randn({2, 24, 4, 3, 1}).contiguous(layout);
    const at::Tensor kernel = at::randn({20, 24, 3, 3, 3}), shift = at::randn({20}), wanted = at::randn({2, 20, 8, 6, 2});
    const auto results = [&](at::ScalarType type, const Fused& fused) {
      const at::Tensor x = values.to(type).requires_grad_(), weight = kernel.to(at::kDouble).requires_grad_();
      const at::Tensor y = upsampled_conv3d(x, type == at::kDouble ? weight : weight.to(at::kFloat), shift, fused);
      y.backward(wanted.to(type));
      return std::vector<at::Tensor>{y.detach(), x.grad(), weight.grad()};
    };
    const auto found = results(at::kBFloat16, {}), expected = results(at::kDouble, kUnfused);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(distance(found[i], expected[i]), 0.02 * expected[i].abs().max().item<double>()) << i;
  }
}

// Values that are not kept are recomputed with the same bits, so a convolution after the norm has the same gradients.
TEST(Residual, ALeanNormChangesNoBit) {
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d}) {
    for (const auto& [type, side] :
         // With side 96 the gradient is computed plane by plane.
         {std::pair{at::kFloat, 7}, {at::kBFloat16, 7}, {at::kBFloat16, 96}}) {
      const at::Tensor values = at::randn({2, 8, 5, 60, side}).to(type).contiguous(layout);
      const at::Tensor numbers = at::randn({2, 8}), kernel = at::randn({4, 8, 3, 3, 3}), shift = at::randn({4});
      const auto results = [&](bool lean) {
        std::vector<at::Tensor> inputs;
        for (const at::Tensor& value : {values, numbers[0], numbers[1], kernel, shift})
          inputs.push_back(value.detach().clone().requires_grad_());
        const Fused fused = lean ? Fused() : Fused::without({kLeanNorms});
        at::Tensor y;
        {
          std::optional<device::Autocast> autocast;
          if (type == at::kBFloat16) autocast.emplace(at::kCPU, type);
          y = normed_conv3d(inputs[0], inputs[1], inputs[2], 4, 1e-6, true, inputs[3], inputs[4], fused);
        }
        (y.to(at::kFloat).square() + y).sum().backward();
        std::vector<at::Tensor> all = {y.detach()};
        for (const at::Tensor& input : inputs) all.push_back(input.grad());
        return all;
      };
      const auto lean = results(true), kept = results(false);
      for (std::size_t i = 0; i < lean.size(); ++i) {
        EXPECT_TRUE(lean[i].equal(kept[i])) << i << " " << type << " " << side;
        EXPECT_EQ(lean[i].scalar_type(), kept[i].scalar_type());
      }
    }
  }
}

// If no norm adds the bias, the convolution adds it, with the same bits.
TEST(Residual, OnACpuAConvolutionAddsItsBiasItself) {
  const at::Tensor x = at::randn({1, 4, 3, 4, 5}), kernel = at::randn({6, 4, 3, 3, 3}), bias = at::randn({6});
  const at::Tensor weight = at::randn({6}), shift = at::randn({6});
  for (const Fused& fused : kWays) {
    EXPECT_FALSE(leaves_out_biases(x, fused));
    const Biased y = biased_conv3d(x, kernel, bias, 1, 1, fused), up = biased_upsampled_conv3d(x, kernel, bias, fused);
    EXPECT_FALSE(y.bias.defined() || up.bias.defined());
    EXPECT_TRUE(whole(y).equal(conv3d(x, kernel, bias, 1, 1, fused)));
    EXPECT_TRUE(whole(up).equal(upsampled_conv3d(x, kernel, bias, fused)));
    const at::Tensor sum = y.x + bias.view({1, 6, 1, 1, 1});
    EXPECT_TRUE(whole({y.x, bias}).equal(sum));
    const Branched both = branched_group_norm({y.x, bias}, weight, shift, 3, 1e-6, true, fused);
    EXPECT_TRUE(both.normed.equal(group_norm(sum, weight, shift, 3, 1e-6, true, fused)));
    EXPECT_TRUE(both.x.x.is_same(y.x) && both.x.bias.is_same(bias));
    const at::Tensor padded = zeros_behind({y.x, bias}, fused);
    EXPECT_TRUE(padded.narrow(2, 0, 3).narrow(3, 0, 4).narrow(4, 0, 5).equal(sum));
    EXPECT_EQ(padded.count_nonzero().item<std::int64_t>(), sum.numel());
  }
}

// LibTorch ends the program where a custom function gets an undefined tensor.
TEST(Residual, AConvolutionMayHaveNoBias) {
  const at::Tensor x = at::randn({1, 4, 3, 3, 3}), kernel = at::randn({2, 4, 3, 3, 3});
  const at::Tensor none = at::Tensor(), zeros = at::randn({2}) * 0.0;
  const at::Tensor weight = at::randn({4}), bias = at::randn({4});
  for (const Fused& fused : kWays) {
    const auto upsampled = [&](const at::Tensor& shift) { return upsampled_conv3d(x, kernel, shift, fused); };
    EXPECT_LE(distance(upsampled(none), upsampled(zeros)), 1e-4);
    const auto normed = [&](const at::Tensor& shift) {
      return normed_conv3d(x, weight, bias, 2, 1e-6, true, kernel, shift, fused);
    };
    EXPECT_LE(distance(normed(none), normed(zeros)), 1e-4);
  }
}

TEST(Residual, CountsWhichWayWasTaken) {
  const telemetry::Counter norms("fused_group_norm"), upsamplings("phased_upsampling"), products("voxel_products");
  const at::Tensor x = at::randn({1, 4, 2, 2, 2}), kernel = at::randn({4, 4, 3, 3, 3}), bias = at::randn({4});
  for (const Fused& fused : kWays) {
    const auto before = norms.total(), upsampled_before = upsamplings.total(), products_before = products.total();
    (void)group_norm(x, bias, bias, 2, 1e-6, true, fused);
    (void)instance_norm_leaky(x, 1e-5, 0.2, fused);
    (void)upsampled_conv3d(x, kernel, bias, fused);
    (void)conv3d(x, kernel, bias, 2, 1, fused);
    (void)conv3d(x, kernel, bias, 1, 1, fused);  // eight voxels of four channels
    EXPECT_EQ(norms.total() - before, fused.on(kFusedGroupNorm) ? 2 : 0);
    EXPECT_EQ(upsamplings.total() - upsampled_before, fused.on(kPhasedUpsampling) ? 1 : 0);
    EXPECT_EQ(products.total() - products_before, fused.on(kVoxelProducts) ? 1 : 0);
  }
}

// Autocast keeps its copies of weights, so the next caller would find a copy that was made without a graph.
TEST(Residual, AConvolutionOfFewVoxelsAndOneOfManyTrainTheSameWeight) {
  const at::Tensor few = at::randn({1, 4, 2, 2, 2}), many = at::randn({1, 4, 4, 4, 4});
  const auto gradient = [&](const Fused& fused) {
    const at::Tensor weight = at::ones({8, 4, 3, 3, 3}).requires_grad_(), bias = at::ones({8}).requires_grad_();
    at::Tensor sum;
    {
      const device::Autocast guard(at::kCPU, at::kBFloat16);
      const at::Tensor first = conv3d(few, weight, bias, 1, 1, fused), second = conv3d(many, weight, bias, 1, 1, fused);
      EXPECT_EQ(first.scalar_type(), at::kBFloat16);
      sum = first.to(at::kFloat).sum() + second.to(at::kFloat).sum();
    }
    sum.backward();
    EXPECT_EQ(bias.grad()[0].item<float>(), 8 + 64);
    return weight.grad();
  };
  const at::Tensor ours = gradient({}), plain = gradient(kUnfused);
  EXPECT_EQ(ours.scalar_type(), at::kFloat);
  EXPECT_LE(distance(ours, plain), 0.02 * plain.abs().max().item<double>());
}

}  // namespace
}  // namespace millrace::nn
