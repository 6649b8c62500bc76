#include "millrace/precision/precision.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/system/instructions.h"

namespace millrace::precision {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const c10::Device kCpu(c10::kCPU);
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Precision : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!hardware_has_fast_bf16(kCpu, &reason)) GTEST_SKIP() << reason;
  }
  // Decides from trials that give the same answer each time.
  static Decision decide(const Trial& fp32, const Trial& bf16) {
    return choose(kCpu, [&](std::optional<c10::ScalarType> format) { return format ? bf16 : fp32; });
  }
};

TEST(PrecisionHardware, FollowsTheCpu) {
  const device::Cpu& cpu = device::cpu_info();
  std::string reason;
  const bool fast = hardware_has_fast_bf16(kCpu, &reason);
  EXPECT_EQ(fast, cpu.avx512_bf16 || cpu.amx_bf16);
  EXPECT_EQ(hardware_has_fast_bf16(kCpu, nullptr), fast);
  EXPECT_THAT(reason, HasSubstr(fast ? "the CPU has " : "the CPU has neither AVX512_BF16 nor AMX"));
  EXPECT_THAT(reason, HasSubstr(fast ? "" : asked_instructions()));
  const Decision decision = choose(kCpu, {});
  EXPECT_EQ(decision.autocast.has_value(), fast);
  EXPECT_EQ(decision.reason, (fast ? "bf16: " : "fp32: ") + reason);
}

TEST(PrecisionHardware, NoTrialOnHardwareThatIsSlowAtIt) {
  if (hardware_has_fast_bf16(kCpu, nullptr)) GTEST_SKIP() << "this CPU is fast at bf16";
  int trials = 0;
  (void)choose(kCpu, [&](std::optional<c10::ScalarType>) { return ++trials, Trial{}; });
  EXPECT_EQ(trials, 0);
}

TEST_F(Precision, TakesBf16WhenItIsFasterAndAgrees) {
  const Decision decision = decide({871.04, 4.2512, 1.02}, {512.3, 4.2507, 1.013, 0.99934});
  EXPECT_EQ(decision.autocast, c10::kBFloat16);
  EXPECT_EQ(decision.reason,
            "bf16: a trial measured 512.3 ms a step in bf16, 871.0 in fp32; loss 4.2507 and 4.2512, gradient norm 1.01 and 1.02, "
            "cosine 0.9993");
}

TEST_F(Precision, StaysWithFp32OtherwiseAndSaysWhy) {
  const Trial good{100, 2.0, 1.0};
  const auto reason = [&](const Trial& bf16) {
    const Decision decision = decide(good, bf16);
    EXPECT_EQ(decision.autocast, std::nullopt);
    return decision.reason;
  };
  EXPECT_EQ(reason({100, 2.0, 1.0}), "fp32: a trial found bf16 no faster: 100.0 ms a step in bf16, 100.0 in fp32");
  EXPECT_EQ(reason({96, 2.0, 1.0}), "fp32: a trial found bf16 less than 5 % faster: 96.0 ms a step in bf16, 100.0 in fp32");
  EXPECT_EQ(reason({50, 2.1, 1.0}),
            "fp32: the loss of a trial step is 2.1 in bf16 and 2 in fp32: 5.0 % apart, but at most 2 % is allowed");
  EXPECT_EQ(reason({50, 2.0, 0.8}),
            "fp32: the gradient's norm of a trial step is 0.8 in bf16 and 1 in fp32: 20.0 % apart, but at most 10 % is allowed");
  EXPECT_EQ(
      reason({50, 2.0, 1.0, 0.5}),
      "fp32: the gradient of a trial step in bf16 points in another direction: its cosine with fp32's is 0.500, but at least "
      "0.9 is required");
  EXPECT_EQ(reason({50, kNan, 1.0}), "fp32: a trial step is finite in fp32 but not in bf16");
  EXPECT_EQ(reason({50, 2.0, std::numeric_limits<double>::infinity()}), "fp32: a trial step is finite in fp32 but not in bf16");
  EXPECT_EQ(decide({100, kNan, 1.0}, {50, kNan, 1.0}).reason, "fp32: a trial step is not finite even in fp32");
}

TEST_F(Precision, AgreesJustInsideTheLimits) {
  EXPECT_TRUE(decide({100, 100.0, 100.0}, {50, 101.9, 109.9}).autocast.has_value());
  EXPECT_TRUE(decide({100, 0.0, 0.0}, {50, 0.0, 0.0}).autocast.has_value());
  EXPECT_FALSE(decide({100, 0.0, 1.0}, {50, 0.1, 1.0}).autocast.has_value());
}

TEST_F(Precision, AlternatesAndTakesTheMedian) {
  std::vector<bool> order;
  const Decision decision = choose(kCpu, [&](std::optional<c10::ScalarType> format) {
    order.push_back(format.has_value());
    const bool first = order.size() <= 2;  // the first step of each format also sets things up
    return Trial{format ? (first ? 9000.0 : 50.0) : (first ? 500.0 : 100.0), 1.0, 1.0};
  });
  EXPECT_THAT(order, testing::ElementsAre(false, true, false, true, false, true));
  EXPECT_EQ(decision.autocast, c10::kBFloat16);
  EXPECT_THAT(decision.reason, HasSubstr("50.0 ms a step in bf16, 100.0 in fp32"));
}

TEST(PrecisionTrial, Fp16IsTriedLikeBf16) {
  const auto trial = [](std::optional<c10::ScalarType> format) { return Trial{format ? 50.0 : 100.0, 2.0, 1.0, 0.999}; };
  const Decision decision = confirm(c10::kHalf, trial);
  EXPECT_EQ(decision.autocast, c10::kHalf);
  EXPECT_THAT(decision.reason, testing::StartsWith("fp16: a trial measured 50.0 ms a step in fp16, 100.0 in fp32; loss 2"));
}

TEST(PrecisionTrial, EveryObjectiveMustAgree) {
  const auto decide = [](double second_loss) {
    return confirm(c10::kHalf, [second_loss](std::optional<c10::ScalarType> format) {
      Trial trial{format ? 50.0 : 100.0, 2.0, 1.0, 1.0, "generator"};
      trial.others.push_back({0.0, format ? second_loss : 3.0, 1.0, 1.0, "discriminator"});
      return trial;
    });
  };
  EXPECT_EQ(
      decide(3.3).reason,
      "fp32: the loss of discriminator of a trial step is 3.3 in fp16 and 3 in fp32: 10.0 % apart, but at most 2 % is allowed");
  EXPECT_THAT(decide(3.0).reason,
              HasSubstr("; generator: loss 2 and 2, gradient norm 1 and 1, cosine 1.0000; discriminator: loss 3"));
}

Trial off(double worst, const char* parameter) {
  return {.step_ms = 50, .loss = 2, .gradient_norm = 1, .worst_gradient = worst, .worst_parameter = parameter};
}

TEST(PrecisionTrial, OneGradientThatIsWrongIsNamed) {
  int round = 0;
  const Decision decision = confirm(c10::kBFloat16, [&](std::optional<c10::ScalarType> format) {
    if (!format) return Trial{100, 2, 1};
    return ++round == 2 ? off(0.5, "encoder.conv1.weight") : off(0.01, "head.bias");
  });
  EXPECT_EQ(decision.autocast, std::nullopt);
  EXPECT_EQ(
      decision.reason,
      "fp32: the gradient of encoder.conv1.weight of a trial step in bf16 is wrong by 50 % of its size in fp32, but at most 25 % "
      "is allowed");
  const auto fine = [](std::optional<c10::ScalarType> format) { return format ? off(0.2, "head.bias") : Trial{100, 2, 1}; };
  EXPECT_EQ(confirm(c10::kBFloat16, fine).autocast, c10::kBFloat16);
}

TEST(PrecisionTrial, BesideOtherProgramsTheBusiestThreadDecides) {
  const auto decide = [](double bf16_busy) {
    return confirm(c10::kBFloat16, [&](std::optional<c10::ScalarType> format) {
      Trial trial{format ? 300.0 : 220.0, 2, 1};
      trial.busy_ms = format ? bf16_busy : 100;
      return trial;
    });
  };
  EXPECT_EQ(decide(60).autocast, c10::kBFloat16);
  EXPECT_THAT(decide(60).reason,
              AllOf(HasSubstr("60.0 ms a step in bf16, 100.0 in fp32"), HasSubstr("other programs used the cores")));
  EXPECT_EQ(decide(110).autocast, std::nullopt);
  EXPECT_THAT(decide(110).reason, AllOf(HasSubstr("no faster: 110.0 ms"), HasSubstr("other programs used the cores")));
}

TEST(PrecisionTrial, NanInOneRoundIsAVerdict) {
  for (const bool in_loss : {true, false}) {
    int round = 0;
    const Decision decision = confirm(c10::kBFloat16, [&](std::optional<c10::ScalarType> format) {
      Trial trial{format ? 50.0 : 100.0, 2, 1};
      if (format && ++round == 3) (in_loss ? trial.loss : trial.gradient_norm) = kNan;
      return trial;
    });
    EXPECT_EQ(decision.autocast, std::nullopt);
    EXPECT_EQ(decision.reason, "fp32: a trial step is finite in fp32 but not in bf16");
  }
}

TEST(PrecisionTrial, AnErrorOfTheTrialDecidesForFp32) {
  const auto trial = [](std::optional<c10::ScalarType> format) {
    TORCH_CHECK(!format, "\"conv\" not implemented for 'Half'\nmore");
    return Trial{100, 1, 1};
  };
  const Decision decision = confirm(c10::kHalf, trial);
  EXPECT_EQ(decision.autocast, std::nullopt);
  EXPECT_EQ(decision.reason, "fp32: a trial step in fp16 failed: \"conv\" not implemented for 'Half'");
}

TEST(PrecisionNames, ThereAndBack) {
  for (const char* name : {"fp32", "bf16", "fp16"}) EXPECT_EQ(name_of(format_of(name)), name);
}

TEST(PrecisionHardware, SlowFormatsAreRemarkedOn) {
  EXPECT_EQ(remark_on(kCpu, std::nullopt), "");
  EXPECT_THAT(remark_on(kCpu, c10::kHalf), HasSubstr("slow here"));
  EXPECT_EQ(remark_on(kCpu, c10::kBFloat16).empty(), hardware_has_fast_bf16(kCpu, nullptr));
}

}  // namespace
}  // namespace millrace::precision
