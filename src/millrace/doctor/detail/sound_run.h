// The evidence of a run without faults, for tests of the rules.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "millrace/doctor/rules.h"

namespace millrace::doctor {

using telemetry::Phase;

// The log lines of the first objective.
inline std::vector<Evidence::LossLine>& lines_of(Evidence& e) { return e.numbers.objectives.front().lines; }

// Evidence of a hundred steps with 40 ms forward, 50 ms backward and 5 ms in the optimiser each. The tests change what their
// rule looks at.
inline Evidence sound() {
  Evidence e;
  e.step = 100;
  e.cores = 4;
  e.times.steps = 100;
  e.times.seconds[static_cast<std::size_t>(Phase::startup)] = 5;
  e.times.seconds[static_cast<std::size_t>(Phase::forward)] = 4;
  e.times.seconds[static_cast<std::size_t>(Phase::backward)] = 5;
  e.times.seconds[static_cast<std::size_t>(Phase::optimizer)] = 0.5;
  e.times.wall = 14.5;
  e.run_seconds = 600;
  e.log = {.count = 2, .every_steps = 50};
  e.snapshot = {.count = 1, .every_steps = 100};
  e.validation = {.count = 1, .every_steps = 100};
  e.input = {.readers = 2, .read_seconds = 2, .read_cpu_seconds = 1};
  e.memory = {.used = 1'000'000'000, .room = 16'000'000'000, .step_peak = 100'000'000};
  e.step_ms = std::vector<double>(12, 95);
  e.numbers.objectives = {{.name = "loss"}};
  for (int i = 0; i < 8; ++i) {
    lines_of(e).push_back({.step = 10 * i, .loss = 3.0 - 0.1 * i, .gradient_norm = 0.5});
    e.numbers.validation.push_back(3.1 - 0.1 * i);
  }
  return e;
}

inline Evidence sound_with(Phase phase, double seconds) {
  Evidence e = sound();
  e.times.seconds[static_cast<std::size_t>(phase)] += seconds;
  e.times.wall += seconds;
  return e;
}

// The first finding, which must be of the rule `id`.
inline Finding first(const Evidence& e, const std::string& id) {
  const std::vector<Finding> findings = findings_of(e);
  EXPECT_FALSE(findings.empty()) << id;
  if (findings.empty()) return {};
  EXPECT_EQ(findings.front().id, id);
  return findings.front();
}

inline void expect_gain(const Finding& finding, double gain) {
  ASSERT_TRUE(finding.gain) << finding.id;
  EXPECT_NEAR(finding.gain->likely, gain, 0.01) << to_text(finding);
  EXPECT_LE(finding.gain->low, finding.gain->likely);
  EXPECT_GE(finding.gain->high, finding.gain->likely);
}

}  // namespace millrace::doctor
