#include "millrace/telemetry/spans.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "millrace/base/clock.h"

namespace millrace::telemetry {
namespace {

double sum_of(const std::array<double, kPhases>& shares) { return std::accumulate(shares.begin(), shares.end(), 0.0); }

double share_of(const Timeline::Summary& summary, Phase phase) { return summary.share[static_cast<std::size_t>(phase)]; }

TEST(Timeline, SharesAreThoseOfThePhasesAndSumToOne) {
  Timeline timeline;
  for (int step = 0; step < 3; ++step) {
    timeline.begin_step();
    timeline.add(Phase::forward, 3'000'000'000);  // longer than the step itself: only what was added counts then
    timeline.add(Phase::backward, 1'000'000'000);
    timeline.end_step();
  }
  const Timeline::Summary total = timeline.total();
  EXPECT_EQ(total.steps, 3);
  EXPECT_DOUBLE_EQ(total.seconds, 12.0);
  EXPECT_DOUBLE_EQ(share_of(total, Phase::forward), 0.75);
  EXPECT_DOUBLE_EQ(share_of(total, Phase::backward), 0.25);
  EXPECT_DOUBLE_EQ(sum_of(total.share), 1.0);
  EXPECT_NEAR(total.step_ms_p50, 4000, 1e-3);
}

TEST(Timeline, WhatNoSpanCoversIsOther) {
  Timeline timeline;
  timeline.begin_step();
  const std::int64_t begin = steady_nanoseconds();
  while (steady_nanoseconds() - begin < 1'000'000) {
  }
  timeline.end_step();
  EXPECT_DOUBLE_EQ(share_of(timeline.total(), Phase::other), 1.0);
  EXPECT_GE(timeline.total().seconds, 1e-3);
}

TEST(Timeline, SpansAddTheirTimeToTheCurrentStep) {
  Timeline timeline;
  timeline.begin_step();
  {
    const Span span(timeline, Phase::optimizer);
    const std::int64_t begin = steady_nanoseconds();
    while (steady_nanoseconds() - begin < 1'000'000) {
    }
  }
  timeline.end_step();
  EXPECT_GE(share_of(timeline.total(), Phase::optimizer) * timeline.total().seconds, 1e-3 * 0.999);
  EXPECT_NEAR(sum_of(timeline.total().share), 1.0, 1e-12);
}

TEST(Timeline, WhatHappensBetweenStepsHasItsShareButIsNoStep) {
  Timeline timeline;
  timeline.begin_step();
  timeline.add(Phase::forward, 3'000'000'000);
  timeline.end_step();
  timeline.add(Phase::validate, 1'000'000'000);
  const Timeline::Summary total = timeline.total();
  EXPECT_EQ(total.steps, 1);
  EXPECT_DOUBLE_EQ(total.seconds, 3.0);
  EXPECT_NEAR(total.step_ms_p95, 3000, 1e-3);
  EXPECT_DOUBLE_EQ(share_of(total, Phase::validate), 0.25);
  EXPECT_DOUBLE_EQ(share_of(timeline.window(), Phase::validate), 0.25);
  EXPECT_DOUBLE_EQ(sum_of(total.share), 1.0);
}

TEST(Timeline, TheWindowStartsAnewAndTheTotalGoesOn) {
  Timeline timeline;
  EXPECT_EQ(timeline.window().steps, 0);
  EXPECT_EQ(sum_of(timeline.window().share), 0.0);
  const auto step = [&](std::int64_t milliseconds) {
    timeline.begin_step();
    timeline.add(Phase::forward, milliseconds * 1'000'000'000);
    timeline.end_step();
  };
  for (int i = 1; i <= 100; ++i) step(i);
  EXPECT_NEAR(timeline.window().step_ms_p50, 50e3, 1);
  EXPECT_NEAR(timeline.window().step_ms_p95, 95e3, 1);
  timeline.reset_window();
  step(7);
  EXPECT_EQ(timeline.window().steps, 1);
  EXPECT_NEAR(timeline.window().step_ms_p95, 7e3, 1);
  EXPECT_EQ(timeline.total().steps, 101);
}

TEST(Timeline, QuantilesOfALongRunComeFromAnEvenSample) {
  Timeline timeline;
  for (int i = 1; i <= 100'000; ++i) {
    timeline.begin_step();
    timeline.add(Phase::forward, std::int64_t{i} * 1'000'000'000);  // each step is slower than the last
    timeline.end_step();
  }
  EXPECT_NEAR(timeline.total().step_ms_p50 / 1e3, 50e3, 3e3);
  EXPECT_NEAR(timeline.total().step_ms_p95 / 1e3, 95e3, 2e3);
}

TEST(Phase, NamesFollowTheirOrder) {
  EXPECT_EQ(name_of(Phase::data_wait), "data_wait");
  EXPECT_EQ(name_of(Phase::snapshot), "snapshot");
  EXPECT_EQ(name_of(Phase::other), "other");
}

TEST(Counter, SumsOverThreadsAlsoThoseThatEnded) {
  const Counter counter("spans_test.sum");
  const std::int64_t before = counter.total();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) counter.add(1);
    });
  }
  counter.add(5);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.total() - before, 40'005);
}

TEST(Counter, OneNameIsOneCounter) {
  const Counter first("spans_test.same");
  const Counter second("spans_test.same");
  const Counter other("spans_test.other");
  first.add(2);
  second.add(-5);
  EXPECT_EQ(first.total(), -3);
  EXPECT_EQ(second.total(), -3);
  EXPECT_EQ(other.total(), 0);
}

}  // namespace
}  // namespace millrace::telemetry
