// Compares values and gradients of a device's own kernels for volumes with the CPU's; see kernels_test.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>

#include "millrace/device/detail/test_kernels.h"
#include "millrace/kernels/circular_pad.h"
#include "millrace/kernels/decoder.h"
#include "millrace/kernels/device_decoder.h"
#include "millrace/kernels/device_group_norm.h"
#include "millrace/kernels/gelu_linear.h"
#include "millrace/kernels/group_norm.h"
#include "millrace/kernels/rms_norm.h"

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

TEST_F(CudaKernels, QuickGeluIsThatOfTheCpu) {
  each_volume([](const at::Tensor& x, const std::string& what) {
    const Computes gelu = [](const Numbers& in) { return Numbers{kernels::gelu(in[0], kernels::Gelu::quick)}; };
    expect_the_cpu(gelu, {x}, tolerance_of(x.scalar_type()), what);
  });
}

}  // namespace
}  // namespace millrace::device
