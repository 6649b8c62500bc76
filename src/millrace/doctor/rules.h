// The doctor's rules. A rule looks at a run's evidence and returns a finding or nothing.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/finding.h"

namespace millrace::doctor {

struct Rule {
  std::string_view id;       // also the anchor of the rule's section in docs/doctor.md
  std::string_view applies;  // in a few words, when the rule applies
  std::optional<Finding> (*look)(const Evidence& evidence);
  Stake stake = Stake::time;  // the stake of the rule's findings, which decides their order: see sort_findings()
  // The accounts of the loop's time that the fault makes longer. Unused entries are empty. If the rule is not about time, all
  // entries are empty.
  std::array<std::string_view, 4> accounts = {};
  bool warned = false;   // true: the run itself also prints a warning when this happens
  bool at_once = false;  // true: the rule counts events, so it judges even the shortest stretch
};

[[nodiscard]] std::span<const Rule> rules() noexcept;

[[nodiscard]] bool can_judge(const Evidence& evidence) noexcept;  // true if the evidence covers enough steps and time for all
                                                                  // rules
// The findings of all rules, sorted by sort_findings(). If can_judge() is false, only the findings of the rules with `at_once`.
[[nodiscard]] std::vector<Finding> findings_of(const Evidence& evidence);

}  // namespace millrace::doctor
