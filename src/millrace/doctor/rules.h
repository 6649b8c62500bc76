// The rules: each checks a run's evidence and returns a finding, or nothing.
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
  std::string_view id;       // also the anchor in docs/doctor.md
  std::string_view applies;  // when it applies, in a few words
  std::optional<Finding> (*look)(const Evidence& evidence);
  Stake stake = Stake::time;  // stake of its findings, which sets their place: see sort_findings()
  // The accounts of the loop's time that the rule's fault lengthens. Unused entries are empty, as are all entries of rules that
  // are not about time.
  std::array<std::string_view, 4> accounts = {};
  bool warned = false;   // the run also prints a warning when it happens
  bool at_once = false;  // judges a stretch however short: it counts what happened
};

[[nodiscard]] std::span<const Rule> rules() noexcept;

[[nodiscard]] bool can_judge(const Evidence& evidence) noexcept;  // true if there are enough steps and time to judge
// The findings of all rules, sorted by sort_findings(); if the evidence is too little to judge, of rules that judge at once.
[[nodiscard]] std::vector<Finding> findings_of(const Evidence& evidence);

}  // namespace millrace::doctor
