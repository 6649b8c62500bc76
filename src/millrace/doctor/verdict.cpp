#include "millrace/doctor/verdict.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/doctor/rules.h"

namespace millrace::doctor {
namespace {

using telemetry::Phase;

std::vector<std::pair<std::string, double>> accounts_of(const telemetry::Timeline::Summary& times) {
  std::vector<std::pair<std::string, double>> accounts;
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (phase != Phase::startup && phase != Phase::trials && times.of(phase) > 0)
      accounts.emplace_back(name_of(phase), times.of(phase));
  }
  std::ranges::stable_sort(accounts, std::ranges::greater(), &std::pair<std::string, double>::second);
  return accounts;
}

std::string sentence(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z') text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text + ".";
}

std::string of_finding(const Finding& finding) {
  std::string text = sentence(finding.what) + " " + sentence(finding.remedy);
  if (finding.gain) {
    text.back() = ':';
    text += " about " + percent(finding.gain->likely) + " less time (" + percent(finding.gain->low) + " to " +
            percent(finding.gain->high) + ").";
  }
  return text;
}

std::string text_of(const Evidence& e, const std::vector<Finding>& findings,
                    const std::vector<std::pair<std::string, double>>& accounts) {
  if (!findings.empty()) {
    std::string text = of_finding(findings.front());
    if (findings.size() == 2) text += " There is another finding.";
    if (findings.size() > 2) text += " There are " + std::to_string(findings.size() - 1) + " more findings.";
    return text;
  }
  if (!can_judge(e))
    return "Too short to judge: " + with_commas(e.times.steps) + (e.times.steps == 1 ? " step in " : " steps in ") +
           human_duration(e.times.loop()) + "; the rules need ten steps and a second.";
  const std::vector<std::pair<std::string, double>> largest(
      accounts.begin(), accounts.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(accounts.size(), 4)));
  return "Nothing was found that slows the run down: " +
         joined(largest, ", ",
                [&](const auto& account) { return account.first + " " + percent(account.second / e.times.loop()); }) +
         ".";
}

}  // namespace

Json verdict_on(const Evidence& evidence) {
  const std::vector<Finding> findings = findings_of(evidence);
  const auto accounts = accounts_of(evidence.times);
  Json json = {{"findings", to_json(findings)}, {"accounts", Json::array()}, {"verdict", text_of(evidence, findings, accounts)}};
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (findings[i].stake == Stake::run) json["findings"][i]["endangers_run"] = true;
  }
  for (const auto& [phase, seconds] : accounts)
    json["accounts"].push_back({{"phase", phase}, {"seconds", seconds}, {"share", seconds / evidence.times.loop()}});
  return json;
}

}  // namespace millrace::doctor
