// Compares two runs: how they differ, and what the differences cause.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/runs/run_facts.h"

namespace millrace::runs {

struct Pair {
  std::string name;
  std::optional<double> a, b;
};

// The unit of accounts: runs of different recipes have no common step (share), and runs with different batch sizes only samples
// in common.
enum class Unit { seconds_a_step, seconds_a_sample, share };

struct Comparison {
  struct Difference {
    std::string key;
    std::optional<RunFacts::Setting> a, b;  // nullopt: this run does not have it
  };

  struct QualityPair {
    std::string name;
    std::optional<RunFacts::Moment> a, b;  // the latest value of each run until then; nullopt: no value yet
  };

  // Why a step of one run is slower than a step of the other.
  struct Explanation {
    std::string text;
    std::string slower;     // "a", "b"; "" = neither, or unknown
    std::string account;    // the account with the largest difference
    std::string explained;  // the account that the finding is about
    std::string rule;       // rule of the finding that explains it; "" = none
    std::string of;         // the run that has the finding
  };

  std::vector<std::string> notes;  // notes on figures that can't be compared, and on those that can
  std::vector<Difference> config, plan, machine;
  std::optional<Difference> data;
  bool knows_data = false;  // true if the data of both runs is known
  Unit unit = Unit::seconds_a_step;
  Pair loop;                   // all accounts except those before the first step; in seconds as `unit` says
  std::vector<Pair> accounts;  // largest first
  std::vector<Pair> once;      // seconds of accounts before the first step
  Pair step_ms;                // median
  std::vector<Pair> memory;    // bytes, largest first
  double step = 0, seconds = 0;
  std::vector<QualityPair> at_step, at_time;
  Explanation explanation;
};

[[nodiscard]] Comparison compare(const RunFacts& a, const RunFacts& b);
[[nodiscard]] Comparison::Explanation explain(const RunFacts& a, const RunFacts& b, const Comparison& figures);
[[nodiscard]] Json to_json(const Comparison& comparison, const RunFacts& a, const RunFacts& b);

}  // namespace millrace::runs
