#include "millrace/train/step/plan.h"

#include <algorithm>

namespace millrace {

void Plan::set(Choice choice) {
  const auto it = std::find_if(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.option == choice.option; });
  if (it == choices_.end()) {
    choices_.push_back(std::move(choice));
  } else {
    *it = std::move(choice);
  }
}

const Choice* Plan::find(const std::string& option) const {
  const auto it = std::find_if(choices_.begin(), choices_.end(), [&](const Choice& c) { return c.option == option; });
  return it == choices_.end() ? nullptr : &*it;
}

Json Plan::trial_choices() const {
  Json all = Json::object();
  for (const Choice& c : choices_) {
    if (c.by_trial) all[c.option] = c.value;
  }
  return all;
}

Json Plan::to_json() const {
  Json all = Json::array();
  for (const Choice& c : choices_) {
    all.push_back({{"option", c.option}, {"value", c.value}, {"origin", c.origin}, {"reason", c.reason}});
    if (c.by_trial) all.back()["by_trial"] = true;
  }
  return all;
}

std::string to_text(const std::vector<Choice>& choices, bool verbose) {
  const auto shown = [verbose](const Choice& c) -> const std::string& { return verbose || c.brief.empty() ? c.value : c.brief; };
  std::size_t option_width = 0;
  std::size_t value_width = 0;
  for (const Choice& c : choices) {
    option_width = std::max(option_width, c.option.size());
    value_width = std::max(value_width, std::min<std::size_t>(shown(c).size(), 24));
  }
  std::string text;
  for (const Choice& c : choices) {
    const std::string& value = shown(c);
    std::string line = "  " + c.option + std::string(option_width - c.option.size() + 2, ' ') + value;
    if (value.size() < value_width) line += std::string(value_width - value.size(), ' ');
    if (!c.reason.empty()) line += "  " + c.reason;
    text += line + "\n";
  }
  return text;
}

}  // namespace millrace
