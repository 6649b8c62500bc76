#include "millrace/doctor/watch.h"

#include <algorithm>

namespace millrace::doctor {

Watch::Change Watch::look(const std::vector<Finding>& found) {
  Change change;
  for (const Finding& finding : found) {
    State& state = states_[finding.id];
    state.latest = finding;
    state.missed = 0;
    if (++state.seen < kComes || state.holds) continue;
    state.holds = change.changed = true;
    if (!state.reported) change.fresh.push_back(finding);
    state.reported = true;
  }
  for (auto& [id, state] : states_) {
    if (std::ranges::any_of(found, [&id = id](const Finding& finding) { return finding.id == id; })) continue;
    state.seen = 0;
    if (!state.holds || ++state.missed < kGoes) continue;
    state.holds = false;
    change.changed = true;
  }
  return change;
}

std::vector<Finding> Watch::holding() const {
  std::vector<Finding> findings;
  for (const auto& [id, state] : states_) {
    if (state.holds) findings.push_back(state.latest);
  }
  sort_findings(findings);
  return findings;
}

}  // namespace millrace::doctor
