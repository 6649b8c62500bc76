// Compares two runs: finds their differences and what follows from them.
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

// The unit in which the accounts of time are compared. Runs with different batch sizes are compared by sample. Runs of
// different recipes are compared only by share of the time, because they have no common unit of work.
enum class Unit { seconds_a_step, seconds_a_sample, share };

struct Comparison {
  struct Difference {
    std::string key;
    std::optional<RunFacts::Setting> a, b;  // nullopt: this run does not have the setting
  };

  struct QualityPair {
    std::string name;
    std::optional<RunFacts::Moment> a, b;  // the latest value of each run up to the step or time at which the runs are compared;
                                           // nullopt: the run had no value yet
  };

  // The reason why one run's steps are slower than the other's.
  struct Explanation {
    std::string text;
    std::string slower;     // "a" or "b"; "" = neither is slower, or it is unknown
    std::string account;    // the account of time that differs most
    std::string explained;  // the account of time that a finding of the doctor explains
    std::string rule;       // id of the rule of that finding; "" = no finding explains the difference
    std::string of;         // the run with that finding: "a" or "b"
  };

  std::vector<std::string> notes;  // which figures can be compared and which can't
  std::vector<Difference> config, plan, machine;
  std::optional<Difference> data;
  bool knows_data = false;  // true: the data of both runs is known
  Unit unit = Unit::seconds_a_step;
  Pair loop;                   // time of the loop in `unit`: all accounts except those before the first step
  std::vector<Pair> accounts;  // accounts of the loop, the largest first
  std::vector<Pair> once;      // seconds of the accounts before the first step
  Pair step_ms;                // medians of the time of a step
  std::vector<Pair> memory;    // bytes, the largest part first
  double step = 0, seconds = 0;
  std::vector<QualityPair> at_step, at_time;
  Explanation explanation;
};

[[nodiscard]] Comparison compare(const RunFacts& a, const RunFacts& b);
[[nodiscard]] Comparison::Explanation explain(const RunFacts& a, const RunFacts& b, const Comparison& figures);
[[nodiscard]] Json to_json(const Comparison& comparison, const RunFacts& a, const RunFacts& b);

}  // namespace millrace::runs
