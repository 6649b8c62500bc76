// A finding: a fault of a run, its remedy and the gain of the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// The harm of a fault. `time`: the run is only slower than necessary. `machine`: the same, but the cause is the machine or
// another program. `run`: the run will end early or learn nothing useful.
enum class Stake : std::uint8_t { time, machine, run };

struct Finding {
  // The share of the loop's time that the remedy saves: with 0.32 the same steps take 0.68 of the time. The share is computed
  // from the run's own accounts of time.
  struct Gain {
    double likely = 0, low = 0, high = 0;
  };

  // A change in a training script that is not Millrace's.
  struct Change {
    std::string text;                   // the text that the user writes: "DataLoader(..., num_workers=4)"
    std::string call;                   // the function or class that takes the arguments in `set`; "" = no call
    Json set = Json::object();          // argument -> value; {"code": "..."} is a value in Python
    std::string command;                // the command that should start the script instead; "" = unchanged
    Json environment = Json::object();  // environment variables for the script
    Json replace = Json::object();      // a line of the script -> the line that replaces it
  };

  std::string id;          // id of the rule
  std::string what;        // the measurement, with figures
  std::string remedy;      // what to do: a command or an action
  std::string key, value;  // the remedy as a config key and its value; "" if the remedy is not a config value
  std::optional<Gain> gain;
  Stake stake = Stake::time;          // the harm of the faults that the rule finds
  bool warned = false;                // Rule::warned of the rule: the run itself also prints a warning
  std::string where = {};             // the place in a script that the finding concerns: "train.py:31"
  std::optional<Change> change = {};  // only in a finding about a script
};

// A gain from `likely` * (1 - spread) to `likely` * (1 + spread), limited to [0, 1].
[[nodiscard]] Finding::Gain gain_of(double likely, double spread = 0.2);

// Sorts findings into three groups: findings that endanger the run, then findings with a gain, then the others. In each group,
// findings about the machine come last, unless they have a Change. Otherwise a larger gain comes first, and equal findings keep
// their order.
void sort_findings(std::vector<Finding>& findings);

// {"id", "what", "remedy", "text", "key", "value", "gain", "gain_low", "gain_high", "page", "where"}, and with a Change also
// {"change": its text, "call", "set", "command", "environment", "replace"}. Fields without a value are left out.
[[nodiscard]] Json to_json(const Finding& finding);
[[nodiscard]] Json to_json(const std::vector<Finding>& findings);
// A line such as "input_bound: steps wait …; try --data.workers=4: about 32 % less time (25 to 40 %)".
[[nodiscard]] std::string to_text(const Finding& finding);

}  // namespace millrace::doctor
