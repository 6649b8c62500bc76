// Which findings hold: one that comes and goes is told once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/doctor/finding.h"

namespace millrace::doctor {

class Watch {
 public:
  static constexpr int kComes = 2;  // looks in a row before a finding holds
  static constexpr int kGoes = 3;   // looks without it before it no longer does

  struct Change {
    std::vector<Finding> told;  // hold from now on, for the first time in this process
    bool changed = false;       // the set of those that hold is another one
  };
  [[nodiscard]] Change look(const std::vector<Finding>& found);
  [[nodiscard]] std::vector<Finding> holding() const;  // with the evidence of their latest look, as sort_findings()

 private:
  struct State {
    Finding latest;
    int seen = 0, missed = 0;
    bool holds = false, told = false;
  };
  std::map<std::string, State> states_;
};

}  // namespace millrace::doctor
