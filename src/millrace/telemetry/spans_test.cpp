#include "millrace/telemetry/spans.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "millrace/base/error.h"

namespace millrace::telemetry {
namespace {

constinit std::int64_t clock_ns = 0;
std::int64_t test_clock() noexcept { return clock_ns; }
void wait_ms(std::int64_t ms) { clock_ns += ms * 1'000'000; }

double sum_of(const Timeline::Summary& summary) { return std::accumulate(summary.seconds.begin(), summary.seconds.end(), 0.0); }

void step_of(Timeline& timeline, Phase phase, std::int64_t ms) {
  timeline.begin_step();
  {
    const Span span(timeline, phase);
    wait_ms(ms);
  }
  timeline.end_step();
}

TEST(Timeline, AccountsAddUpToTheWallTime) {
  Timeline timeline(&test_clock);
  timeline.began_earlier(500'000'000);
  wait_ms(250);
  {
    const Span span(timeline, Phase::trials);
    wait_ms(100);
  }
  for (int step = 0; step < 3; ++step) {
    step_of(timeline, Phase::forward, 30);
    wait_ms(10);
  }
  {
    const Span span(timeline, Phase::snapshot);
    wait_ms(70);
    const Timeline::Summary inside = timeline.total();  // the time of an open account counts too
    EXPECT_DOUBLE_EQ(inside.of(Phase::snapshot), 0.07);
  }
  const Timeline::Summary total = timeline.total();
  EXPECT_DOUBLE_EQ(total.of(Phase::startup), 0.75);
  EXPECT_DOUBLE_EQ(total.of(Phase::trials), 0.1);
  EXPECT_DOUBLE_EQ(total.of(Phase::forward), 0.09);
  EXPECT_DOUBLE_EQ(total.of(Phase::rest), 0.03);
  EXPECT_DOUBLE_EQ(total.wall, 1.04);
  EXPECT_NEAR(sum_of(total), total.wall, 1e-12);
  EXPECT_EQ(total.steps, 3);
  EXPECT_DOUBLE_EQ(total.step_seconds, 0.09);
}

TEST(Timeline, SharesAreThoseOfTheLoop) {
  Timeline timeline(&test_clock);
  EXPECT_EQ(timeline.window().share(Phase::forward), 0.0);
  wait_ms(1000);
  timeline.begin_step();
  wait_ms(25);
  timeline.enter(Phase::backward);
  wait_ms(75);
  timeline.leave(Phase::rest);
  timeline.end_step();
  const Timeline::Summary total = timeline.total();
  EXPECT_NEAR(total.share(Phase::backward), 0.75, 1e-12);
  EXPECT_NEAR(total.share(Phase::rest), 0.25, 1e-12);
  EXPECT_EQ(total.share(Phase::startup), 0.0);
}

TEST(Timeline, ASpanInsideAnotherTakesItsTimeAway) {
  Timeline timeline(&test_clock);
  timeline.begin_step();
  {
    const Span outer(timeline, Phase::optimizer);
    wait_ms(2);
    {
      const Span inner(timeline, Phase::reduction);
      wait_ms(5);
    }
    wait_ms(3);
  }
  timeline.end_step();
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::optimizer), 0.005);
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::reduction), 0.005);
}

TEST(Timeline, AValidationIsNotToldApart) {
  Timeline timeline(&test_clock);
  timeline.begin_step();
  timeline.end_step();
  {
    const Span outer(timeline, Phase::validate);
    wait_ms(2);
    {
      const Span inner(timeline, Phase::prepare);
      wait_ms(5);
    }
    wait_ms(3);
  }
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::validate), 0.01);
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::prepare), 0.0);
  EXPECT_DOUBLE_EQ(timeline.total().step_seconds, 0.0);
}

TEST(Timeline, TheWindowStartsAnewAndTheTotalGoesOn) {
  Timeline timeline(&test_clock);
  for (int i = 1; i <= 100; ++i) step_of(timeline, Phase::forward, i);
  EXPECT_NEAR(timeline.window().step_ms_p50, 50, 1e-3);
  EXPECT_NEAR(timeline.window().step_ms_p95, 95, 1e-3);
  const Span span(timeline, Phase::log);
  wait_ms(4);
  timeline.reset_window();  // in the middle of an account, so that both windows get a part of it
  wait_ms(6);
  step_of(timeline, Phase::forward, 7);
  EXPECT_EQ(timeline.window().steps, 1);
  EXPECT_NEAR(timeline.window().step_ms_p95, 7, 1e-3);
  EXPECT_DOUBLE_EQ(timeline.window().of(Phase::log), 0.006);
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::log), 0.01);
  EXPECT_EQ(timeline.total().steps, 101);
}

TEST(Timeline, QuantilesOfALongRunComeFromAnEvenSample) {
  Timeline timeline(&test_clock);
  for (int i = 1; i <= 100'000; ++i) step_of(timeline, Phase::forward, i);  // each step is slower than the step before
  EXPECT_NEAR(timeline.total().step_ms_p50, 50e3, 3e3);
  EXPECT_NEAR(timeline.total().step_ms_p95, 95e3, 2e3);
}

TEST(Timeline, AStepThatIsDroppedIsNoStep) {
  Timeline timeline(&test_clock);
  timeline.begin_step();
  wait_ms(3);
  timeline.drop_step();
  EXPECT_EQ(timeline.total().steps, 0);
  EXPECT_DOUBLE_EQ(timeline.total().of(Phase::rest), 0.003);
  EXPECT_THROW(timeline.end_step(), InternalError);
}

TEST(Phase, NamesFollowTheirOrder) {
  EXPECT_EQ(name_of(Phase::startup), "startup");
  EXPECT_EQ(name_of(Phase::data_wait), "data_wait");
  EXPECT_EQ(name_of(Phase::validate), "validate");
  EXPECT_EQ(name_of(Phase::rest), "rest");
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
