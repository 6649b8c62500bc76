#include "millrace/device/autocast.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

namespace millrace::device {
namespace {

constexpr auto kCpu = c10::DeviceType::CPU;

at::ScalarType product_dtype() {
  const at::Tensor a = at::ones({2, 2});
  return at::mm(a, a).scalar_type();
}

TEST(Autocast, CastsInsideAndRestoresOutside) {
  const auto dtype_before = at::autocast::get_autocast_dtype(kCpu);
  EXPECT_EQ(product_dtype(), at::kFloat);
  {
    const Autocast guard(kCpu, at::kBFloat16);
    EXPECT_EQ(product_dtype(), at::kBFloat16);
    {
      const Autocast inner(kCpu, at::kHalf);
      EXPECT_EQ(product_dtype(), at::kHalf);
    }
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(kCpu), dtype_before);
}

TEST(Autocast, WithoutADtypeNothingChanges) {
  const Autocast nothing(kCpu, std::nullopt);
  EXPECT_EQ(product_dtype(), at::kFloat);
  const Autocast on(kCpu, at::kBFloat16);
  const Autocast nothing_inside(kCpu, std::nullopt);
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(Autocast, NoAutocastIsAnIslandInside) {
  const Autocast guard(kCpu, at::kBFloat16);
  {
    const NoAutocast island(kCpu);
    EXPECT_EQ(product_dtype(), at::kFloat);
    const Autocast again(kCpu, at::kBFloat16);
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), at::kBFloat16);
}

TEST(Autocast, IsThreadLocal) {
  const Autocast guard(kCpu, at::kBFloat16);
  at::ScalarType elsewhere = at::kBFloat16;
  std::thread([&] { elsewhere = product_dtype(); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

TEST(Autocast, RestoresWhenAnExceptionLeaves) {
  try {
    const Autocast guard(kCpu, at::kBFloat16);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
}

// The cache holds casts of leaf weights. An optimiser changes the weights between two forward passes, so a cast that survived
// would give the second pass the old weights.
TEST(Autocast, CachedWeightsDoNotOutliveTheOutermostGuard) {
  at::Tensor weight = at::ones({2, 2}).set_requires_grad(true);
  const auto forward = [&] {
    const Autocast guard(kCpu, at::kBFloat16);
    const at::Tensor first = at::mm(at::ones({2, 2}), weight);
    const Autocast inner(kCpu, at::kBFloat16);
    return at::mm(first, weight).sum().item<float>();
  };
  EXPECT_EQ(forward(), 16.0F);
  weight.data().fill_(2.0);
  EXPECT_EQ(forward(), 64.0F);
}

TEST(Tf32, IsAllowedForProductsAndConvolutionsAlike) {
  const Tf32 restored(false);
  at::Context& context = at::globalContext();
  allow_tf32(true);
  EXPECT_TRUE(context.allowTF32CuBLAS() && context.allowTF32CuDNN());
  allow_tf32(false);
  EXPECT_FALSE(context.allowTF32CuBLAS() || context.allowTF32CuDNN());
}

TEST(Tf32, SetsAndRestores) {
  at::Context& context = at::globalContext();
  const bool matmul = context.allowTF32CuBLAS();
  const bool convolution = context.allowTF32CuDNN();
  {
    const Tf32 on(true);
    EXPECT_TRUE(context.allowTF32CuBLAS() && context.allowTF32CuDNN());
    const Tf32 off(false);
    EXPECT_FALSE(context.allowTF32CuBLAS() || context.allowTF32CuDNN());
  }
  EXPECT_EQ(context.allowTF32CuBLAS(), matmul);
  EXPECT_EQ(context.allowTF32CuDNN(), convolution);
}

}  // namespace
}  // namespace millrace::device
