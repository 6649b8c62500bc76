// What is wrong with a run, and what mending it would gain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// Part of the loop's time that would go: 0.32 = the same steps in 0.68 of the time. Computed from the run's own accounts.
struct Gain {
  double likely = 0, low = 0, high = 0;
};

// What a finding is about: a run that only takes longer than it need, or one that ends early, or learns nothing of use.
enum class Stake : std::uint8_t { time, run };

struct Finding {
  std::string id;          // of the rule
  std::string what;        // the evidence, with its figures
  std::string remedy;      // what to type or to do
  std::string key, value;  // of the config, where the remedy is a value; else ""
  std::optional<Gain> gain;
  Stake stake = Stake::time;  // of the rule
  bool warned = false;        // of the rule
};

[[nodiscard]] Gain gain_of(double likely, double spread = 0.2);  // with an interval of so much of it on each side, inside 0 to 1

// Whatever threatens the run first, then the gains, the greatest first, then what has no gain in time. What is alike stays in
// order.
void sort_findings(std::vector<Finding>& findings);

// {"id", "what", "remedy", "text", "key", "value", "gain", "gain_low", "gain_high", "page"}; without what it does not have.
[[nodiscard]] Json to_json(const Finding& finding);
[[nodiscard]] Json to_json(const std::vector<Finding>& findings);
// "input_bound: steps wait …; try --data.workers=4: about 32 % less time (25 to 40 %)". One line.
[[nodiscard]] std::string to_text(const Finding& finding);

}  // namespace millrace::doctor
