// The rules: each looks at the evidence of a run and says what is wrong, or nothing.
#pragma once

#include <functional>
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
};

[[nodiscard]] std::span<const Rule> rules() noexcept;

[[nodiscard]] bool can_judge(const Evidence& evidence) noexcept;  // there are enough steps and time to judge by
// Of all rules, as sort_findings() has them. Nothing where nothing can be judged.
[[nodiscard]] std::vector<Finding> findings_of(const Evidence& evidence);

}  // namespace millrace::doctor
