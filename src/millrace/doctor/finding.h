// A fault of a run, and the gain from fixing it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// What a finding puts at stake. `time`: the run is only slower than necessary. `run`: it ends early or learns nothing useful.
enum class Stake : std::uint8_t { time, run };

struct Finding {
  // The share of the loop's time that would be saved: 0.32 = the same steps in 0.68 of the time. Computed from the run's own
  // accounts.
  struct Gain {
    double likely = 0, low = 0, high = 0;
  };

  std::string id;          // the rule's
  std::string what;        // the evidence, with its figures
  std::string remedy;      // the command or action
  std::string key, value;  // config key and value if the remedy is a value; else ""
  std::optional<Gain> gain;
  Stake stake = Stake::time;  // the rule's
  bool warned = false;        // the rule's
};

// The interval is `spread` of `likely` to each side, clipped to [0, 1].
[[nodiscard]] Finding::Gain gain_of(double likely, double spread = 0.2);

// Sorts findings that threaten the run first, then by gain, greatest first, then those without a gain in time. Stable: ties keep
// their order.
void sort_findings(std::vector<Finding>& findings);

// {"id", "what", "remedy", "text", "key", "value", "gain", "gain_low", "gain_high", "page"}; fields without a value are left out.
[[nodiscard]] Json to_json(const Finding& finding);
[[nodiscard]] Json to_json(const std::vector<Finding>& findings);
// "input_bound: steps wait …; try --data.workers=4: about 32 % less time (25 to 40 %)". One line.
[[nodiscard]] std::string to_text(const Finding& finding);

}  // namespace millrace::doctor
