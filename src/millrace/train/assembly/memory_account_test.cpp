#include "millrace/train/assembly/memory_account.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(MemoryAccount, AddsUpAndTellsTheLargestFirst) {
  MemoryAccount account{.weights = 10'000'000, .gradients = 10'000'000, .optimizer = 20'000'000, .activations = 100'000'000};
  account.libraries = 150'000'000;
  account.loader = 1000;
  EXPECT_EQ(account.of_tensors(), 140'000'000U);
  EXPECT_EQ(account.sum(), 290'001'000U);
  EXPECT_EQ(
      account.to_text(300'000'000),
      "peak memory 300 MB: libraries 150 MB, activations 100 MB, optimizer 20 MB, weights 10 MB, gradients 10 MB, rest 3 %");
  EXPECT_EQ(
      account.to_text(250'000'000),
      "peak memory 250 MB: libraries 150 MB, activations 100 MB, optimizer 20 MB, weights 10 MB, gradients 10 MB; their sum is "
      "16 % larger, because the parts peak at different times");
  const Json json = account.to_json(300'000'000);
  EXPECT_EQ(json["rest"], 9'999'000);
  EXPECT_EQ(json["loader"], 1000);
  EXPECT_EQ(account.to_json(0)["rest"], -290'001'000) << "more than the peak is an error of the account, and is shown";
}

TEST(MemoryAccount, OfAGpuIsTwoSums) {
  MemoryAccount account{.on_gpu = true, .weights = 1'000'000'000, .activations = 7'000'000'000, .libraries = 600'000'000};
  EXPECT_EQ(account.of_tensors(), 8'000'000'000U);
  EXPECT_EQ(account.sum(), 600'000'000U) << "a process holds none of the GPU's";
  EXPECT_EQ(account.to_text(800'000'000),
            "GPU memory 8.0 GB: activations 7.0 GB, weights 1.0 GB; peak memory 800 MB: libraries 600 MB, rest 25 %");
  EXPECT_EQ(account.to_json(800'000'000)["rest"], 200'000'000);
  EXPECT_EQ(account.to_json(800'000'000)["gpu"], 8'000'000'000);
}

TEST(MemoryAccount, OfNothingIsAPeakAlone) { EXPECT_EQ(MemoryAccount{}.to_text(1'000'000), "peak memory 1.0 MB: rest 100 %"); }

}  // namespace
}  // namespace millrace
