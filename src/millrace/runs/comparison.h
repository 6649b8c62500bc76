// Two runs beside each other: what is different between them, and what that did.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/runs/run_facts.h"

namespace millrace::runs {

struct Difference {
  std::string key;
  std::optional<Setting> a, b;  // none: this run does not have it
};

struct Pair {
  std::string name;
  std::optional<double> a, b;
};

struct QualityPair {
  std::string name;
  std::optional<Moment> a, b;  // the latest of each run until then; none: there is none yet
};

// What the figures of the accounts are: work of other recipes has no step in common, steps of other batches only their samples.
enum class Unit { seconds_a_step, seconds_a_sample, share };

// Why a step of one run takes longer than one of the other.
struct Explanation {
  std::string text;
  std::string slower;     // "a", "b"; "" = neither, or it can't be told
  std::string account;    // with the largest difference
  std::string explained;  // the account that the finding is about
  std::string rule;       // of the finding that explains it; "" = none does
  std::string of;         // the run that has the finding
};

struct Comparison {
  std::vector<std::string> notes;  // what can't be compared, and what still is
  std::vector<Difference> config, plan, machine;
  std::optional<Difference> data;
  bool knows_data = false;  // of both runs
  Unit unit = Unit::seconds_a_step;
  Pair loop;                   // all accounts but those before the first step; seconds as `unit` says
  std::vector<Pair> accounts;  // the largest first
  std::vector<Pair> once;      // seconds of those before the first step
  Pair step_ms;                // median
  std::vector<Pair> memory;    // bytes, the largest first
  double step = 0, seconds = 0;
  std::vector<QualityPair> at_step, at_time;
  Explanation explanation;
};

[[nodiscard]] Comparison compare(const RunFacts& a, const RunFacts& b);
[[nodiscard]] Explanation explain(const RunFacts& a, const RunFacts& b, const Comparison& figures);
[[nodiscard]] Json to_json(const Comparison& comparison, const RunFacts& a, const RunFacts& b);

}  // namespace millrace::runs
