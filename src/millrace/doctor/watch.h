// Follows which findings hold during a run, so that a finding that comes and goes is reported only once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/doctor/finding.h"

namespace millrace::doctor {

class Watch {
 public:
  static constexpr int kComes = 2;  // a finding holds after it was found in this many consecutive checks
  static constexpr int kGoes = 3;   // a finding no longer holds after it was missing in this many consecutive checks

  struct Change {
    std::vector<Finding> fresh;  // findings that hold from now on and never held before in this process
    bool changed = false;        // true: the set of findings that hold has changed
  };
  [[nodiscard]] Change look(const std::vector<Finding>& found);
  [[nodiscard]] std::vector<Finding> holding() const;  // the findings that hold, with their latest evidence, sorted by
                                                       // sort_findings()

 private:
  struct State {
    Finding latest;
    int seen = 0, missed = 0;
    bool holds = false, reported = false;
  };
  std::map<std::string, State> states_;
};

}  // namespace millrace::doctor
