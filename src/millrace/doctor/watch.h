// Tracks which findings hold, so that a finding that comes and goes is reported once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/doctor/finding.h"

namespace millrace::doctor {

class Watch {
 public:
  static constexpr int kComes = 2;  // consecutive looks before a finding holds
  static constexpr int kGoes = 3;   // consecutive looks without it before it stops holding

  struct Change {
    std::vector<Finding> fresh;  // findings that start to hold, for the first time in this process
    bool changed = false;        // the set of findings that hold has changed
  };
  [[nodiscard]] Change look(const std::vector<Finding>& found);
  [[nodiscard]] std::vector<Finding> holding() const;  // with their latest evidence, sorted by sort_findings()

 private:
  struct State {
    Finding latest;
    int seen = 0, missed = 0;
    bool holds = false, reported = false;
  };
  std::map<std::string, State> states_;
};

}  // namespace millrace::doctor
