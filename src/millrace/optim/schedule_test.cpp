#include "millrace/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "millrace/base/error.h"

namespace millrace::optim {
namespace {

using testing::HasSubstr;

OptimConfig config(ScheduleKind kind, std::int64_t warmup = 0) {
  OptimConfig c;
  c.schedule = kind;
  c.learning_rate = 0.4;
  c.min_learning_rate = 0.1;
  c.warmup_steps = warmup;
  c.decay_every = 3;
  c.decay_factor = 0.5;
  return c;
}

template <class Call>
std::string config_error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

// A config's own checks do not see the settings that a recipe gives an objective.
TEST(Schedule, SettingsOutOfTheirRangeAreRefused) {
  const auto told = [](const std::function<void(OptimConfig&)>& change) {
    OptimConfig c;
    change(c);
    return config_error_of([&] { (void)settled(c, 10, 8); });
  };
  EXPECT_EQ(told([](OptimConfig&) {}), "no ConfigError");
  EXPECT_THAT(told([](OptimConfig& c) { c.betas = {0.9, 1.0}; }), HasSubstr("optim.betas is 1, out of range"));
  EXPECT_THAT(told([](OptimConfig& c) { c.betas = {-0.1, 0.9}; }), HasSubstr("choose a value >= 0 and < 1"));
  EXPECT_THAT(told([](OptimConfig& c) { c.betas = {0.9}; }), HasSubstr("optim.betas has 1 values, expected 2"));
  EXPECT_THAT(told([](OptimConfig& c) { c.learning_rate = 0; }), HasSubstr("optim.learning_rate is 0, out of range"));
  EXPECT_THAT(told([](OptimConfig& c) { c.learning_rate = std::nan(""); }), HasSubstr("optim.learning_rate is nan"));
  EXPECT_THAT(told([](OptimConfig& c) { c.eps = 0; }), HasSubstr("optim.eps"));
  EXPECT_THAT(told([](OptimConfig& c) { c.weight_decay = -0.1; }), HasSubstr("optim.weight_decay"));
  EXPECT_THAT(told([](OptimConfig& c) { c.momentum = 1; }), HasSubstr("optim.momentum"));
  EXPECT_THAT(told([](OptimConfig& c) { c.ema_decay = 1; }), HasSubstr("optim.ema_decay"));
}

TEST(Schedule, WarmupRisesLinearlyAndReachesTheBase) {
  for (const auto kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::warmup_cosine,
                          ScheduleKind::step, ScheduleKind::plateau}) {
    const OptimConfig c = config(kind, 4);
    for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(learning_rate_at(c, step, 20), 0.1 * (step + 1));
    EXPECT_DOUBLE_EQ(learning_rate_at(c, 4, 20), 0.4);
  }
}

// Equals PyTorch's LinearLR(start_factor=0.1, total_iters=5), chained with CosineAnnealingLR.
TEST(Schedule, WarmupFromAPartOfTheRate) {
  OptimConfig c = config(ScheduleKind::warmup_cosine, 5);
  c.warmup_start = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 0, 25), 0.04);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 1, 25), 0.4 * (0.1 + 0.9 / 5));
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 5, 25), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 15, 25), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 25, 25), 0.1);
}

TEST(Settled, AShareOfTheRunBecomesStepsWhereTheScheduleEnds) {
  OptimConfig c = config(ScheduleKind::cosine);
  c.warmup_frac = 0.15;
  EXPECT_EQ(settled(c, 30, 8).warmup_steps, 5);
  EXPECT_EQ(settled(c, 0, 8).warmup_steps, 0);
  c.warmup_steps = 2;
  EXPECT_EQ(settled(c, 30, 8).warmup_steps, 2) << "steps that are given win";
  OptimConfig open_end = config(ScheduleKind::constant);
  open_end.warmup_frac = 0.15;
  EXPECT_EQ(settled(open_end, 30, 8).warmup_steps, 0);
}

TEST(Settled, AWarmUpOfACosineWithAFloorIsRoundedUp) {
  OptimConfig c = config(ScheduleKind::warmup_cosine);
  c.warmup_frac = 0.05;
  EXPECT_EQ(settled(c, 41, 8).warmup_steps, 2);
  c.schedule = ScheduleKind::cosine_floor;
  EXPECT_EQ(settled(c, 41, 8).warmup_steps, 3);
  EXPECT_EQ(settled(c, 40, 8).warmup_steps, 2);
  EXPECT_EQ(settled(c, 140, 8).warmup_steps, 7) << ".05 of it is 7.000000000000001 in fp64";
}

TEST(Schedule, ACosineWithAFloorIsThatOfZeroCutOff) {
  OptimConfig c = config(ScheduleKind::cosine_floor, 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 0, 22), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 2, 22), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 12, 22), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 14, 22), 0.4 * 0.5 * (1 + std::cos(std::numbers::pi * 0.6)));
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 16, 22), 0.1) << "the cosine is below the floor";
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 21, 22), 0.1);
}

TEST(Settled, TheRateFollowsTheGlobalBatch) {
  OptimConfig c = config(ScheduleKind::cosine);
  EXPECT_EQ(settled(c, 30, 8).learning_rate, 0.4);
  c.lr_scaling_batch = 2;
  c.lr_scaling = RateScaling::linear;
  EXPECT_DOUBLE_EQ(settled(c, 30, 8).learning_rate, 1.6);
  EXPECT_EQ(settled(c, 30, 8).min_learning_rate, 0.1);
  EXPECT_EQ(settled(c, 30, 0).learning_rate, 0.4);
  c.lr_scaling = RateScaling::sqrt;
  EXPECT_DOUBLE_EQ(settled(c, 30, 8).learning_rate, 0.8);
  c.lr_scaling_batch = 0;
  EXPECT_EQ(config_error_of([&] { (void)settled(c, 30, 8); }),
            "ConfigError  the learning rate can't be scaled, because the global batch for which it was chosen is not set\n"
            "  where    optim.lr_scaling = sqrt, optim.lr_scaling_batch = 0\n"
            "  next     set optim.lr_scaling_batch to that global batch, or optim.lr_scaling to none");
}

TEST(Schedule, ConstantAndPlateauStayAtTheBase) {
  for (const auto kind : {ScheduleKind::constant, ScheduleKind::plateau}) {
    for (const std::int64_t step : {0, 1, 1000000}) EXPECT_DOUBLE_EQ(learning_rate_at(config(kind), step, 0), 0.4);
  }
}

TEST(Schedule, LinearAndCosineFollowTheirFormulas) {
  for (const std::int64_t warmup : {0, 5}) {
    for (std::int64_t step = warmup; step < 20; ++step) {
      const double t = static_cast<double>(step - warmup) / static_cast<double>(20 - warmup);
      EXPECT_DOUBLE_EQ(learning_rate_at(config(ScheduleKind::linear, warmup), step, 20), 0.4 - 0.3 * t);
      const double cosine = 0.1 + 0.3 * 0.5 * (1 + std::cos(std::numbers::pi * t));
      EXPECT_DOUBLE_EQ(learning_rate_at(config(ScheduleKind::cosine, warmup), step, 20), cosine);
      EXPECT_DOUBLE_EQ(learning_rate_at(config(ScheduleKind::warmup_cosine, warmup), step, 20), cosine);
    }
  }
}

TEST(Schedule, StaysAtTheEndBeyondTheLastStep) {
  for (const auto kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::one_cycle}) {
    EXPECT_DOUBLE_EQ(learning_rate_at(config(kind), 20, 20), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate_at(config(kind), 500, 20), 0.1);
  }
}

TEST(Schedule, StepDecaysDownToTheFloor) {
  const OptimConfig c = config(ScheduleKind::step, 2);
  const double expected[] = {0.2, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
  for (int step = 0; step < 15; ++step) EXPECT_DOUBLE_EQ(learning_rate_at(c, step, 0), expected[step]) << step;
}

TEST(Schedule, OneCycleStartsPeaksAndEnds) {
  const OptimConfig c = config(ScheduleKind::one_cycle);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 0, 100), 0.4 / 25);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 29, 100), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(c, 99, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(config(ScheduleKind::one_cycle, 11), 10, 100), 0.4);
  for (int step = 1; step < 100; ++step) {
    const double change = learning_rate_at(c, step, 100) - learning_rate_at(c, step - 1, 100);
    EXPECT_EQ(change > 0, step <= 29) << step;
  }
}

TEST(Schedule, ShortRunsAreFinite) {
  for (const auto kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::one_cycle}) {
    for (std::int64_t total = 1; total < 5; ++total) {
      for (std::int64_t warmup = 0; warmup < 7; ++warmup) {
        for (std::int64_t step = 0; step < total; ++step) {
          const double rate = learning_rate_at(config(kind, warmup), step, total);
          EXPECT_TRUE(rate > 0 && rate <= 0.4) << rate;
        }
      }
    }
  }
}

TEST(Schedule, WhatIsMissingIsNamed) {
  for (const auto kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::warmup_cosine, ScheduleKind::one_cycle}) {
    EXPECT_THAT(config_error_of([&] { (void)learning_rate_at(config(kind), 0, 0); }), HasSubstr("set train.max_steps"));
  }
  OptimConfig c = config(ScheduleKind::step);
  c.decay_every = 0;
  EXPECT_EQ(config_error_of([&] { check_schedule(c, 10); }),
            "ConfigError  the schedule must know after how many steps to decay\n"
            "  where    optim.schedule = step, optim.decay_every = 0\n"
            "  next     set optim.decay_every to a number of steps above 0");
  EXPECT_EQ(config_error_of([] { check_schedule(config(ScheduleKind::cosine), 0); }),
            "ConfigError  the schedule must know how many steps the run has\n"
            "  where    optim.schedule = cosine, train.max_steps = 0\n"
            "  next     set train.max_steps or train.epochs, or use schedule constant, step or plateau");
}

OptimConfig plateau_config() {
  OptimConfig c = config(ScheduleKind::plateau);
  c.plateau_patience = 1;
  c.plateau_threshold = 0.1;
  return c;
}

TEST(Plateau, DecaysAfterPatienceAndStopsAtTheFloor) {
  Plateau plateau(plateau_config());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // A value improves if it is more than 10 % below the best. With patience 1 the second bad value in a row decays the factor,
  // down to 0.1 / 0.4.
  const double metrics[] = {1.0, 0.95, 0.8, 0.79, 0.78, nan, 0.77, 0.6, 9, 9, 9, 9};
  const double factors[] = {1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25};
  for (std::size_t i = 0; i < std::size(metrics); ++i) {
    plateau.observe(metrics[i]);
    EXPECT_DOUBLE_EQ(plateau.factor(), factors[i]) << i;
  }
}

TEST(Plateau, AThresholdIsOfTheMagnitudeAlsoBelowZero) {
  // Each row: the best value, the next value, and whether the next value improves by 10 %. An equal or higher value never
  // improves, on either side of 0.
  const struct {
    double first, next;
    bool better;
  } cases[] = {{-70, -70, false}, {-70, -69, false}, {-70, -76, false}, {-70, -78, true},
               {0, 0, false},     {0, -1, true},     {1, -0.1, true},   {-1e-300, -1, true}};
  for (const auto& each : cases) {
    Plateau plateau(plateau_config());
    plateau.observe(each.first);
    plateau.observe(each.next);
    EXPECT_EQ(plateau.state()["best"], each.better ? each.next : each.first) << each.first << " then " << each.next;
  }
}

TEST(Plateau, StateContinuesExactly) {
  for (int stop = 0; stop < 6; ++stop) {
    Plateau whole(plateau_config());
    Plateau before(plateau_config());
    const double metrics[] = {1.0, 1.0, 0.5, 0.5, 0.5, 0.5};
    for (int i = 0; i < stop; ++i) {
      whole.observe(metrics[i]);
      before.observe(metrics[i]);
    }
    Plateau after(plateau_config());
    const Json saved = Json::parse(before.state().dump());
    after.load_state(SavedJson(saved, "optimizer"));
    for (int i = stop; i < 6; ++i) {
      whole.observe(metrics[i]);
      after.observe(metrics[i]);
    }
    EXPECT_EQ(after.state(), whole.state());
  }
}

TEST(Plateau, RefusesADamagedState) {
  for (const char* text : {"{}", "[]", "3", R"({"factor": "x", "bad": 1})", R"({"factor": 1, "bad": 1, "best": null})",
                           R"({"factor": -1, "bad": 1})", R"({"factor": 1, "bad": -1})", R"({"factor": 1, "bad": 1e308})"}) {
    Plateau plateau(plateau_config());
    const Json saved = Json::parse(text);
    EXPECT_THROW(plateau.load_state(SavedJson(saved, "optimizer")), SnapshotError) << text;
    EXPECT_EQ(plateau.factor(), 1.0);
  }
}

TEST(Plateau, WhatIsNoNumberIsNeverBest) {
  Plateau plateau(plateau_config());
  for (const double metric : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    plateau.observe(metric);
    EXPECT_FALSE(plateau.state().contains("best")) << metric;
  }
  plateau.observe(2.0);
  EXPECT_EQ(plateau.state()["best"], 2.0);
}

}  // namespace
}  // namespace millrace::optim
