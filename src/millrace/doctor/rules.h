// The rules: each looks at the evidence of a run and says what is wrong, or nothing.
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
  std::string_view id;    // also the anchor in docs/doctor.md
  std::string_view says;  // when, in a few words
  std::optional<Finding> (*look)(const Evidence& evidence);
  Stake stake = Stake::time;  // what its findings are about, which decides where they stand: see sort_findings()
  // The accounts of the loop's time in which its fault takes time; unused places are empty, as all are of rules about other
  // things.
  std::array<std::string_view, 4> accounts = {};
  bool warned = false;  // the run prints a warning of the same when it happens
};

[[nodiscard]] std::span<const Rule> rules() noexcept;

[[nodiscard]] bool can_judge(const Evidence& evidence) noexcept;  // there are enough steps and time to judge by
// Of all rules, as sort_findings() has them. Nothing where nothing can be judged.
[[nodiscard]] std::vector<Finding> findings_of(const Evidence& evidence);

}  // namespace millrace::doctor
