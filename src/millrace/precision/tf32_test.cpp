#include "millrace/precision/tf32.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/device/autocast.h"

namespace millrace::precision {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const c10::Device kHost(c10::kCPU), kGpu(c10::kCUDA, 0);
constexpr std::pair kTuring{7, 5}, kAmpere{8, 0}, kHopper{9, 0};

TEST(Tf32Choice, AnFp32StepIsExactUntilSomeoneAsks) {
  const Chosen<bool> left = choose_tf32(std::nullopt, kGpu, kHopper, std::nullopt);
  EXPECT_FALSE(left.value);
  EXPECT_THAT(left.reason, HasSubstr("device.tf32=on"));
  EXPECT_TRUE(choose_tf32(true, kGpu, kHopper, std::nullopt).value);
}

TEST(Tf32Choice, BesideSixteenBitsItIsOnUntilSomeoneAsks) {
  for (const auto format : {c10::kBFloat16, c10::kHalf}) {
    const Chosen<bool> left = choose_tf32(std::nullopt, kGpu, kAmpere, format);
    EXPECT_TRUE(left.value);
    EXPECT_THAT(left.reason, StartsWith(format == c10::kHalf ? "fp16 rounds more" : "bf16 rounds more"));
    EXPECT_FALSE(choose_tf32(false, kGpu, kAmpere, format).value);
  }
}

TEST(Tf32Choice, NeedsComputeCapability8) {
  for (const std::optional<bool> wish : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
    const Chosen<bool> choice = choose_tf32(wish, kGpu, kTuring, c10::kHalf);
    EXPECT_FALSE(choice.value);
    EXPECT_EQ(choice.reason, std::string(wish ? "without effect: " : "") + "compute capability 7.5, but TF32 needs 8.0");
  }
}

TEST(Tf32Choice, ACpuHasNoneAndSaysSoOnlyWhenAsked) {
  EXPECT_EQ(choose_tf32(std::nullopt, kHost, std::nullopt).reason, "");
  const Chosen<bool> asked = choose_tf32(true, kHost, std::nullopt);
  EXPECT_FALSE(asked.value);
  EXPECT_EQ(asked.reason, "without effect: only GPUs have TF32");
}

TEST(Tf32Choice, TheWordFp32SaysWhichOneItIsOnAGpuAlone) {
  EXPECT_THAT(tf32_remark({.value = true, .reason = ""}, kGpu, std::nullopt), HasSubstr("in TF32"));
  EXPECT_THAT(tf32_remark({.value = false, .reason = ""}, kGpu, std::nullopt), HasSubstr("exact"));
  EXPECT_EQ(tf32_remark({.value = true, .reason = ""}, kGpu, c10::kBFloat16), "");
  EXPECT_EQ(tf32_remark({.value = false, .reason = ""}, kHost, std::nullopt), "");
}

TEST(Tf32Choice, IsPutIntoPracticeForProductsAndConvolutionsAlikeAndNotOnACpu) {
  const device::Tf32 restored(false);
  at::Context& context = at::globalContext();
  use_tf32({.value = true, .reason = ""}, kHost);
  EXPECT_FALSE(context.allowTF32CuBLAS() || context.allowTF32CuDNN());
  use_tf32({.value = true, .reason = ""}, kGpu);
  EXPECT_TRUE(context.allowTF32CuBLAS() && context.allowTF32CuDNN());
  use_tf32({.value = false, .reason = ""}, kGpu);
  EXPECT_FALSE(context.allowTF32CuBLAS() || context.allowTF32CuDNN());
}

}  // namespace
}  // namespace millrace::precision
