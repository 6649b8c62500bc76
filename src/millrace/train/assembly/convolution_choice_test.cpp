#include "millrace/train/assembly/convolution_choice.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "millrace/device/convolution_trial.h"
#include "millrace/kernels/convolution_weights.h"
#include "millrace/kernels/group_norm.h"

namespace millrace {
namespace {

// The run's step calls one convolution. A stand-in for the program millrace-convolutions gives the verdict on this convolution's
// weight gradient that a test wants.
class ConvolutionChoiceTest : public ::testing::Test {
 protected:
  ConvolutionChoiceTest() : folder_(::testing::TempDir() + "convolution-choice-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    ::setenv("MILLRACE_CONVOLUTIONS_CHILD", (folder_ / "child.sh").c_str(), 1);
  }
  ~ConvolutionChoiceTest() override {
    ::unsetenv("MILLRACE_CONVOLUTIONS_CHILD");
    std::filesystem::remove_all(folder_);
  }
  void weight_gradients_are(const std::string& verdict) const {
    const std::filesystem::path script = folder_ / "child.sh";
    std::ofstream(script) << "#!/bin/sh\ncat > /dev/null\nfor unit in 0 1 2 3 4 5; do echo begin $unit 5000; case $unit in 2|5) "
                          << verdict << ";; *) echo right $unit;; esac; done\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  }
  ConvolutionChoice choose(KeptTrials& kept, const std::string& before = {}) {
    return choose_convolutions(
        [this] {
          ++steps_;
          (void)at::convolution(at::ones({2, 3, 8, 8}), at::ones({4, 3, 3, 3}), {}, {1}, {1}, {1}, false, {0}, 1);
        },
        kept, "convolutions toy", before);
  }
  [[nodiscard]] KeptTrials open() const { return {Fs::real(), folder_ / "cache", true}; }

  std::filesystem::path folder_;
  int steps_ = 0;
};

// In bf16 the weight gradient of a large volume is computed plane by plane of the kernel, so the census must list those smaller
// convolutions.
TEST_F(ConvolutionChoiceTest, ACensusInFp32SeesWhatAStepInBf16AsksFor) {
  const auto step_in = [](at::ScalarType format) {
    return [format] {
      const at::Tensor x = at::ones({1, 16, 24, 32, 32}, format).requires_grad_(),
                       weight = at::ones({16, 16, 3, 3, 3}).requires_grad_();
      kernels::group_norm_conv3d(x, at::ones({16}), at::zeros({16}), {.groups = 4}, weight, at::zeros({16})).sum().backward();
    };
  };
  const auto has_all = [](const std::vector<device::ConvolutionShape>& seen, const std::vector<device::ConvolutionShape>& asked) {
    return std::ranges::all_of(asked, [&](const auto& shape) { return std::ranges::find(seen, shape) != seen.end(); });
  };
  const std::vector<device::ConvolutionShape> asked = device::convolutions_of(step_in(at::kBFloat16));
  EXPECT_GT(asked.size(), 1U);
  EXPECT_FALSE(has_all(device::convolutions_of(step_in(at::kFloat)), asked));
  const auto census = device::convolutions_of([&] {
    const kernels::CutAsInBf16 cut;
    step_in(at::kFloat)();
  });
  EXPECT_TRUE(has_all(census, asked));
}

constexpr const char* kValue = "fp32 for weight gradient of [2, 3, 8, 8] x [4, 3, 3, 3], padding [1, 1]";

TEST_F(ConvolutionChoiceTest, WhatIsWrongIsComputedInFp32AndALaterRunKnowsIt) {
  weight_gradients_are("echo wrong $unit not finite");
  KeptTrials first = open();
  const ConvolutionChoice found = choose(first);
  EXPECT_EQ(found.value(), kValue);
  EXPECT_EQ(found.reason, "a separate process tried 1 of 1 convolution in bf16: weight gradient not finite");
  weight_gradients_are("echo right $unit");
  KeptTrials second = open();
  const ConvolutionChoice known = choose(second);
  EXPECT_EQ(known.value(), kValue);
  EXPECT_EQ(known.reason, found.reason + kOfAnEarlierRun);
  EXPECT_EQ(steps_, 1) << "nothing is tried again";
}

TEST_F(ConvolutionChoiceTest, ARunThatGoesOnKeepsInFp32WhatWasSo) {
  weight_gradients_are("echo right $unit");
  KeptTrials none(Fs::real(), {}, false);
  EXPECT_EQ(choose(none).value(), "bf16");
  EXPECT_EQ(choose(none, "bf16").value(), "bf16");
  EXPECT_EQ(choose(none, kValue).value(), kValue);
  EXPECT_EQ(choose(none, "fp32 for weight gradient of [2, 3, 8, 8] x [4, 3, 5, 5]").value(), "bf16") << "not of this step";
}

TEST_F(ConvolutionChoiceTest, WhatWasNotTriedIsSaidAndTriedAgainByTheNextRun) {
  weight_gradients_are("echo untried $unit out of memory");
  KeptTrials first = open();
  const ConvolutionChoice found = choose(first);
  EXPECT_EQ(found.value(), "bf16");
  EXPECT_EQ(found.reason, "a separate process tried 0 of 1 convolution in bf16: all right; not all tried: out of memory");
  (void)choose(first);
  EXPECT_EQ(steps_, 2);
}

TEST_F(ConvolutionChoiceTest, ACacheMayHoldAnything) {
  for (const char* text : {"{}", "[]", "3", R"({"shapes": 1, "reason": "", "faults": [{"pass": 7}]})",
                           R"({"shapes": "x", "reason": "", "faults": []})", R"({"shapes": 1, "reason": 2, "faults": []})"})
    EXPECT_EQ(convolution_choice_in(Json::parse(text)), std::nullopt) << text;
}

}  // namespace
}  // namespace millrace
