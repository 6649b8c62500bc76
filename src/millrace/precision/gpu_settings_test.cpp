#include "millrace/precision/gpu_settings.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "millrace/base/error.h"
#include "millrace/kernels/attention_draws.h"

namespace millrace::precision {
namespace {

using testing::HasSubstr;

const c10::Device kOnCpu(c10::kCPU), kOnGpu(c10::kCUDA, 0);

// Sets LibTorch's defaults, and clears the environment's settings, before and after each test.
class GpuWaysInForce : public testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
  static void reset() {
    ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::globalContext().setDeterministicCuDNN(false);
    at::globalContext().setBenchmarkCuDNN(false);
  }
};

TEST(GpuSettings, AreChosenByWhetherBitsMustRepeat) {
  const GpuSettings left = choose_gpu_settings(false, std::nullopt, kOnGpu);
  EXPECT_FALSE(left.deterministic);
  EXPECT_TRUE(left.timed_convolutions);
  EXPECT_THAT(left.deterministic_reason, HasSubstr("train.deterministic=true"));
  const GpuSettings repeats = choose_gpu_settings(true, std::nullopt, kOnGpu);
  EXPECT_TRUE(repeats.deterministic);
  EXPECT_FALSE(repeats.timed_convolutions);
  EXPECT_THAT(repeats.convolutions_reason, HasSubstr("another algorithm in each run"));
  EXPECT_FALSE(choose_gpu_settings(false, false, kOnGpu).timed_convolutions);
  EXPECT_EQ(choose_gpu_settings(false, true, kOnGpu).convolutions_reason, "");
  EXPECT_FALSE(choose_gpu_settings(true, true, kOnGpu).timed_convolutions);
  EXPECT_THAT(choose_gpu_settings(true, true, kOnGpu).convolutions_reason, HasSubstr("train.deterministic forbids"));
}

TEST(GpuSettings, OfACpuAreSaidToBeNoneOnlyWhenAsked) {
  const GpuSettings left = choose_gpu_settings(false, std::nullopt, kOnCpu);
  EXPECT_EQ(left.deterministic_reason + left.convolutions_reason, "");
  EXPECT_THAT(choose_gpu_settings(true, std::nullopt, kOnCpu).deterministic_reason, HasSubstr("a CPU computes the same bits"));
  EXPECT_THAT(choose_gpu_settings(true, true, kOnCpu).convolutions_reason, HasSubstr("without effect"));
}

TEST_F(GpuWaysInForce, ReachLibTorchAndCublas) {
  at::Context& context = at::globalContext();
  use_gpu_settings(choose_gpu_settings(true, std::nullopt, kOnGpu), kOnGpu);
  EXPECT_TRUE(context.deterministicAlgorithms() && context.deterministicCuDNN());
  EXPECT_TRUE(kernels::counts_attention());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly()) << "attention would keep its atomic additions";
  EXPECT_FALSE(context.benchmarkCuDNN() || context.deterministicFillUninitializedMemory());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  use_gpu_settings(choose_gpu_settings(false, std::nullopt, kOnGpu), kOnGpu);
  EXPECT_TRUE(context.benchmarkCuDNN());
  EXPECT_FALSE(context.deterministicAlgorithms() || context.deterministicCuDNN());
  EXPECT_FALSE(kernels::counts_attention());
}

TEST_F(GpuWaysInForce, LeaveACpuAsItIs) {
  use_gpu_settings(choose_gpu_settings(true, true, kOnCpu), kOnCpu);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms() || at::globalContext().benchmarkCuDNN());
  EXPECT_EQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), nullptr);
}

TEST_F(GpuWaysInForce, AWorkspaceThatDoesNotRepeatIsRefused) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  use_gpu_settings(choose_gpu_settings(true, std::nullopt, kOnGpu), kOnGpu);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8", 1);
  try {
    use_gpu_settings(choose_gpu_settings(true, std::nullopt, kOnGpu), kOnGpu);
    ADD_FAILURE() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 allows products that do not"));
  }
}

}  // namespace
}  // namespace millrace::precision
