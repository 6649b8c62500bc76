#include "millrace/doctor/finding.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "millrace/base/format.h"

namespace millrace::doctor {
namespace {

void add_to(Json& json, const Finding::Change& change) {
  const std::initializer_list<std::pair<const char*, Json>> parts = {{"change", change.text},
                                                                     {"call", change.call},
                                                                     {"set", change.set},
                                                                     {"command", change.command},
                                                                     {"environment", change.environment},
                                                                     {"replace", change.replace}};
  for (const auto& [name, value] : parts) {
    if (value != "" && !(value.is_object() && value.empty())) json[name] = value;
  }
}

}  // namespace

Finding::Gain gain_of(double likely, double spread) {
  const auto inside = [](double value) { return std::clamp(value, 0.0, 1.0); };
  return {inside(likely), inside(likely * (1 - spread)), inside(likely * (1 + spread))};
}

void sort_findings(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, std::ranges::greater(), [](const Finding& finding) {
    const bool of_run = finding.stake == Stake::run, has_gain = finding.gain && !of_run;
    const bool in_users_hands = finding.stake != Stake::machine || finding.change;
    return std::tuple(of_run, has_gain, in_users_hands, has_gain ? finding.gain->likely : 0.0);
  });
}

Json to_json(const Finding& finding) {
  Json json = {{"id", finding.id},
               {"what", finding.what},
               {"remedy", finding.remedy},
               {"text", to_text(finding)},
               {"page", "docs/doctor.md#" + finding.id}};
  if (!finding.key.empty()) {
    json["key"] = finding.key;
    json["value"] = finding.value;
  }
  if (finding.gain) {
    json["gain"] = finding.gain->likely;
    json["gain_low"] = finding.gain->low;
    json["gain_high"] = finding.gain->high;
  }
  if (!finding.where.empty()) json["where"] = finding.where;
  if (finding.change) add_to(json, *finding.change);
  return json;
}

Json to_json(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) json.push_back(to_json(finding));
  return json;
}

std::string to_text(const Finding& finding) {
  std::string text = finding.id + ": " + finding.what + "; " + finding.remedy;
  if (!finding.gain) return text;
  return text + ": about " + percent(finding.gain->likely) + " less time (" + percent(finding.gain->low) + " to " +
         percent(finding.gain->high) + ")";
}

}  // namespace millrace::doctor
