// Compares values and gradients of a device's own kernels for volumes and decoders with the CPU's; see kernels_test.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/device/detail/test_kernels.h"
#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/decoder.h"
#include "millrace/kernels/device_decoder.h"
#include "millrace/kernels/device_group_norm.h"
#include "millrace/kernels/device_lora.h"
#include "millrace/kernels/gelu_linear.h"
#include "millrace/kernels/group_norm.h"
#include "millrace/kernels/rms_norm.h"
#include "millrace/kernels/soft_pool.h"

namespace millrace::device {
namespace {

template <class Body>
void each_volume(const Body& body) {
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d})
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const std::int64_t channels : {3, 16})
        for (const std::int64_t side : {1, 4, 33})
          body(at::randn({2, channels, side, 4, 6}).to(type).contiguous(layout), std::to_string(channels) + " channels");
}

TEST_F(CudaKernels, RmsNormsAreThoseOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const Computes norm = [](const Numbers& in) { return Numbers{kernels::rms_norm_silu(in[0], 1e-5)}; };
    expect_the_cpu(norm, {x}, tolerance_of(x.scalar_type()), what);
  });
}

TEST_F(CudaKernels, GroupNormsAreThoseOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const std::int64_t channels = x.size(1);
    for (const std::int64_t groups : {std::int64_t{1}, channels}) {
      const Computes norm = [&](const Numbers& in) {
        return Numbers{kernels::group_norm(in[0], in[1], in[2], {.groups = groups, .silu = groups == 1, .slope = 0.1})};
      };
      // The tolerance is large because a value near the edge of the leaky ReLU may fall on its other side.
      const double tolerance = x.scalar_type() == at::kFloat ? 1e-4 : 4 * tolerance_of(x.scalar_type());
      expect_the_cpu(norm, {x, at::randn({channels}), at::randn({channels})}, tolerance, what);
    }
  });
}

// The bias that x lacks, and a second branch that reads x; on the CPU both are operations of their own.
TEST_F(CudaKernels, AGroupNormOfXWithoutItsBiasIsThatOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const std::int64_t channels = x.size(1);
    for (const std::int64_t groups : {std::int64_t{1}, channels}) {
      const kernels::GroupNormOptions options{.groups = groups, .silu = groups == 1};
      const Computes norm = [&](const Numbers& in) {
        if (in[0].is_cpu()) {
          const at::Tensor wide = in[0].to(at::kFloat);  // the sum is not rounded
          const at::Tensor y = kernels::group_norm(wide + in[1].view({1, -1, 1, 1, 1}), in[2], in[3], options);
          return Numbers{y.to(in[0].scalar_type()), in[0] * 2};
        }
        const kernels::DeviceNormed both = kernels::device_group_norm(in[0], in[1], in[2], in[3], options);
        return Numbers{both.y, both.x * 2};
      };
      const double tolerance = x.scalar_type() == at::kFloat ? 1e-4 : 4 * tolerance_of(x.scalar_type());
      expect_the_cpu(norm, {x, at::randn({channels}), at::randn({channels}), at::randn({channels})}, tolerance, what);
    }
  });
}

TEST_F(CudaKernels, SoftPoolingIsThatOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    for (const std::int64_t stride : {1, 2}) {
      const Computes pool = [&](const Numbers& in) { return Numbers{kernels::blurred_soft_pool(in[0], stride)}; };
      expect_the_cpu(pool, {x}, 2 * tolerance_of(x.scalar_type()), what + ", stride " + std::to_string(stride));
    }
  });
}

TEST_F(CudaKernels, CircularPaddingIsThatOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const Computes alone = [](const Numbers& in) { return Numbers{kernels::circular_pad(in[0])}; };
    const Computes both = [](const Numbers& in) { return Numbers{kernels::circular_pad(in[0], in[1])}; };
    expect_the_cpu(alone, {x}, tolerance_of(x.scalar_type()), what);
    expect_the_cpu(both, {x, x * 2}, tolerance_of(x.scalar_type()), what);
  });
}

TEST_F(CudaKernels, ADecodersLayersAreThoseOfTheCpu) {
  for (const std::int64_t width : {64, 100, 1024}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const Computes norm = [&](const Numbers& in) {
        if (in[0].is_cpu()) return Numbers{kernels::rms_rows(in[0] + in[1], in[2], 1e-5, type)};
        return Numbers{kernels::device_rms_rows(in[0], in[1], in[2], 1e-5, type).second};
      };
      expect_the_cpu(norm, {at::randn({7, width}), at::randn({7, width}).to(type), at::randn({width})}, tolerance_of(type),
                     "norm");
      const Computes swiglu = [](const Numbers& in) {
        return Numbers{in[0].is_cpu() ? kernels::swiglu(in[0]) : kernels::device_swiglu(in[0])};
      };
      expect_the_cpu(swiglu, {at::randn({3, 5, 2 * width}).to(type)}, tolerance_of(type), "swiglu");
    }
  }
}

// x by frozen weights, the first and the last with an adapter. `in`: x, then A and B of both.
at::Tensor adapted(const Numbers& in, const Numbers& weights, const Numbers& biases, const kernels::Dropout& site) {
  constexpr double kScale = 1.5;
  const auto there = [&](const Numbers& all, std::size_t i) { return all.empty() ? at::Tensor() : all[i].to(in[0].device()); };
  const at::Tensor block = at::cat(weights).to(in[0].device());  // the first two are adjacent in memory
  std::vector<kernels::LoraWeights> all = {{block.narrow(0, 0, weights[0].size(0)), there(biases, 0), in[1], in[2]},
                                           {block.narrow(0, weights[0].size(0), weights[1].size(0)), there(biases, 1), {}, {}}};
  if (weights.size() > 2) all.push_back({there(weights, 2), there(biases, 2), in[3], in[4]});
  if (!in[0].is_cpu()) return kernels::device_lora_linear(in[0], all, kScale, site);
  const at::Tensor x = in[0].to(at::kFloat), dropped = kernels::dropout(in[0], site).to(at::kFloat);
  Numbers results;
  for (const kernels::LoraWeights& one : all) {
    at::Tensor y = x.matmul(one.weight.to(at::kFloat).t());
    if (one.bias.defined()) y = y + one.bias;
    if (one.a.defined()) y = y + dropped.matmul(one.a.t()).matmul(one.b.t()) * kScale;
    results.push_back(y);
  }
  return at::cat(results, -1);
}

TEST_F(CudaKernels, AdaptedProjectionsAreTheirFormula) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::size_t count : {2, 3}) {
      for (const bool has_bias : {false, true}) {
        for (const double p : {0.0, 0.3}) {
          Numbers weights, biases, inputs = {at::randn({2, 5, 24}).to(type)};
          for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t out = 16 + 8 * static_cast<std::int64_t>(i);
            weights.push_back((at::randn({out, 24}) * 0.2).to(count == 2 ? type : at::kFloat));
            if (has_bias) biases.push_back(at::randn({out}));
            if (i == 1) continue;
            inputs.push_back(at::randn({4, 24}) * 0.2);
            inputs.push_back(at::randn({out, 4}));
          }
          const Computes project = [&](const Numbers& in) { return Numbers{adapted(in, weights, biases, {.p = p, .key = 7})}; };
          expect_the_cpu(project, inputs, 4 * tolerance_of(type), std::to_string(count) + " projections");
          const Computes of_data = [&](const Numbers& in) {
            Numbers all = {inputs[0].to(in[0].device())};
            all.insert(all.end(), in.begin(), in.end());
            return Numbers{adapted(all, weights, biases, {.p = p, .key = 7})};
          };
          expect_the_cpu(of_data, {inputs.begin() + 1, inputs.end()}, 4 * tolerance_of(type), "x is data");
        }
      }
    }
  }
}

TEST_F(CudaKernels, PartsAreTurnedWhereTheyLie) {
  const std::int64_t length = 5, heads = 3, width = 16;
  const at::Tensor angles = at::randn({length, width / 2}), cos = angles.cos(), sin = angles.sin();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t parts : {2, 3}) {
      const Computes turn = [&](const Numbers& in) {
        const at::Tensor packed = in[0] * 1.0, c = cos.to(packed.device()), s = sin.to(packed.device());
        if (!packed.is_cpu()) {
          EXPECT_TRUE(kernels::has_device_turn(packed, parts, heads, c));
          return kernels::device_turn_parts(packed, parts, parts - 1, heads, c, s);
        }
        Numbers all = packed.to(at::kFloat).unflatten(2, {parts, heads, width}).unbind(2);
        for (std::size_t i = 0; i + 1 < all.size(); ++i) {
          const auto halves = all[i].chunk(2, -1);
          const at::Tensor by = c.unsqueeze(1), over = s.unsqueeze(1);
          all[i] = at::cat({halves[0] * by - halves[1] * over, halves[1] * by + halves[0] * over}, -1);
        }
        return all;
      };
      expect_the_cpu(turn, {at::randn({2, length, parts * heads * width}).to(type)}, tolerance_of(type),
                     std::to_string(parts) + " parts");
    }
  }
}

TEST_F(CudaKernels, QuickGeluIsThatOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const Computes gelu = [](const Numbers& in) { return Numbers{kernels::gelu(in[0], kernels::Gelu::quick)}; };
    expect_the_cpu(gelu, {x}, tolerance_of(x.scalar_type()), what);
  });
}

}  // namespace
}  // namespace millrace::device
