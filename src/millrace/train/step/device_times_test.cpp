#include "millrace/train/step/device_times.h"

#include <gtest/gtest.h>

#include <numeric>

namespace millrace {
namespace {

using telemetry::Phase;

telemetry::Timeline::Summary host(double copy, double forward, double backward, double optimizer, double log) {
  telemetry::Timeline::Summary times;
  times.steps = 10;
  times.step_ms_p50 = 3;
  times.seconds[static_cast<std::size_t>(Phase::copy)] = copy;
  times.seconds[static_cast<std::size_t>(Phase::forward)] = forward;
  times.seconds[static_cast<std::size_t>(Phase::backward)] = backward;
  times.seconds[static_cast<std::size_t>(Phase::optimizer)] = optimizer;
  times.seconds[static_cast<std::size_t>(Phase::log)] = log;
  times.wall = copy + forward + backward + optimizer + log;
  return times;
}

// A step of copy, forward, backward and optimiser, with times in milliseconds. The host takes 1 ms for each.
struct Step {
  std::vector<DeviceTimes::Mark> marks;
  std::vector<double> ms;
  void add(std::initializer_list<std::pair<Phase, double>> parts) {
    std::int64_t at = marks.empty() ? 0 : marks.back().host_ns;
    if (!marks.empty()) ms.push_back(500);  // milliseconds since the previous step
    for (const auto& [phase, took] : parts) {
      marks.push_back({.phase = phase, .host_ns = at});
      ms.push_back(took);
      at += 1'000'000;
    }
    marks.push_back({.ends_step = true, .host_ns = at});
  }
};

double sum(const telemetry::Timeline::Summary& times) { return std::accumulate(times.seconds.begin(), times.seconds.end(), 0.0); }

TEST(DeviceTimes, AWaitForTheStepBeforeIsNoCopy) {
  Step seen;
  seen.add({{Phase::copy, 1}, {Phase::forward, 30}, {Phase::backward, 60}, {Phase::optimizer, 9}});
  seen.add({{Phase::copy, 1}, {Phase::forward, 30}, {Phase::backward, 60}, {Phase::optimizer, 9}});
  DeviceTimes device;
  device.add(seen.marks, seen.ms);
  // On the host the copy took all of the time, because the host waited there.
  auto window = host(0.97, 0.01, 0.01, 0.01, 0.2);
  auto total = host(1.97, 0.02, 0.02, 0.02, 0.4);
  device.book(window);
  EXPECT_NEAR(window.of(Phase::copy), 0.01, 1e-12);
  EXPECT_NEAR(window.of(Phase::forward), 0.30, 1e-12);
  EXPECT_NEAR(window.of(Phase::backward), 0.60, 1e-12);
  EXPECT_NEAR(window.of(Phase::optimizer), 0.09, 1e-12);
  EXPECT_EQ(window.of(Phase::log), 0.2) << "no phase of a step";
  EXPECT_NEAR(sum(window), window.wall, 1e-12) << "the accounts still add up";
  EXPECT_NEAR(window.step_ms_p50, 100, 1e-4) << "not the host's, nor with what came between steps";
  device.correct(total);
  EXPECT_NEAR(total.of(Phase::copy), 1.01, 1e-12);
  EXPECT_NEAR(sum(total), total.wall, 1e-12);
  EXPECT_EQ(device.sums().steps, 2);
  EXPECT_NEAR(device.sums().device_seconds, 0.2, 1e-12);
  EXPECT_NEAR(device.sums().host_seconds, 0.008, 1e-12);
}

TEST(DeviceTimes, WhereNoStepWasLookedAtTheHostsStay) {
  DeviceTimes device;
  auto window = host(0.1, 0.2, 0.3, 0.4, 0.5);
  device.book(window);
  EXPECT_EQ(window.of(Phase::copy), 0.1);
  EXPECT_EQ(window.step_ms_p50, 3);
  Step seen;
  seen.add({{Phase::forward, 10}});
  device.add(seen.marks, seen.ms);
  device.book(window);
  EXPECT_NEAR(window.of(Phase::forward), 1.0, 1e-12);
  auto next = host(0.1, 0.2, 0.3, 0.4, 0.5);
  device.book(next);
  EXPECT_EQ(next.of(Phase::copy), 0.1) << "each step counts once";
}

TEST(DeviceTimes, WaitingForDataIsNoLaunching) {
  Step seen;
  seen.add({{Phase::data_wait, 40}, {Phase::forward, 10}});
  DeviceTimes device;
  device.add(seen.marks, seen.ms);
  EXPECT_NEAR(device.sums().host_seconds, 0.001, 1e-12);
  auto window = host(0, 1, 0, 0, 0);
  device.book(window);
  EXPECT_NEAR(window.of(Phase::data_wait), 0.8, 1e-12) << "the device had nothing to do";
  device.waited(0.25);
  EXPECT_EQ(device.sums().waits, 1);
  EXPECT_EQ(device.sums().waited_seconds, 0.25);
}

}  // namespace
}  // namespace millrace
