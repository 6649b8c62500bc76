// All faults of a data set in one error.
#pragma once

#include <vector>

#include "millrace/base/error.h"

namespace millrace::recipes::cosmology {

// Its text lists the problems, each in its three parts.
class SkyProblems final : public DataError {
 public:
  explicit SkyProblems(std::vector<Problem> problems);
  [[nodiscard]] const std::vector<Problem>& problems() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// Throws a DataError for one problem and SkyProblems for several; does nothing for an empty list.
void refuse_all(const std::vector<Problem>& problems);

// Runs `action` and adds a DataError that it throws to `problems`.
template <class Action>
void collect(std::vector<Problem>& problems, const Action& action) {
  try {
    action();
  } catch (const SkyProblems& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  } catch (const DataError& error) {
    problems.push_back(error.message());
  }
}

}  // namespace millrace::recipes::cosmology
