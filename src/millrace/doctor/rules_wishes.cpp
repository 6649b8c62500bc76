// What the config asks for, beside what the run has.
#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

std::string amount(const Target& target, double value) {
  return target.unit.empty() ? percent(value) : significant(value, 3) + " " + target.unit;
}

std::string miss(const Target& target) {
  return target.what + " " + amount(target, target.measured) + (target.at_most ? " of at most " : " of ") +
         amount(target, target.asked) + " (" + target.key + ")";
}

}  // namespace

// The time that reaching it would save is what the other findings predict, each for its cause.
Found target_missed(const Evidence& e) {
  std::string misses;
  for (const Target& target : e.targets) {
    if (!target.met()) misses += (misses.empty() ? "" : ", ") + miss(target);
  }
  if (misses.empty()) return std::nullopt;
  return Finding{.id = {},
                 .what = "the run misses what its config asks for: " + misses,
                 .remedy = "mend what the other findings and the accounts name, or ask for what this machine can",
                 .key = {},
                 .value = {},
                 .gain = std::nullopt};
}

}  // namespace millrace::doctor::detail
