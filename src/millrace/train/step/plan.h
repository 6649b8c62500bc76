// The plan of a run: every choice, with its reason.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

struct Choice {
  std::string option;  // config key or switch name
  std::string value;
  std::string origin;  // "auto", "flag", "file …", "preset …", "default", "snapshot"
  std::string reason;
  bool by_trial = false;
  std::string brief = "";  // a short form of the value, shown to people unless they ask for everything; "" = the value itself is
                           // shown
};

// Aligned lines for people. `verbose`: values instead of their brief forms.
[[nodiscard]] std::string to_text(const std::vector<Choice>& choices, bool verbose = false);

class Plan {
 public:
  void set(Choice choice);  // replaces an earlier choice of the same option
  [[nodiscard]] const Choice* find(const std::string& option) const;
  [[nodiscard]] const std::vector<Choice>& choices() const noexcept { return choices_; }
  // The values that trials chose, as {option: value}; part of the snapshot. A resumed run keeps them and makes no new trials,
  // because another choice would change bits.
  [[nodiscard]] Json trial_choices() const;
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] std::string to_text(bool verbose = false) const { return millrace::to_text(choices_, verbose); }

 private:
  std::vector<Choice> choices_;
};

}  // namespace millrace
