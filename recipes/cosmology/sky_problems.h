// An error that lists all faults of a data set.
#pragma once

#include <vector>

#include "millrace/base/error.h"

namespace millrace::recipes::cosmology {

// The text lists the problems, each with what, where and next.
class SkyProblems final : public DataError {
 public:
  explicit SkyProblems(std::vector<Problem> problems);
  [[nodiscard]] const std::vector<Problem>& problems() const noexcept { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// Throws DataError for a single problem and SkyProblems for several. Does nothing if the list is empty.
void refuse_all(const std::vector<Problem>& problems);

// Runs `action`. If `action` throws DataError, adds its problems to `problems`.
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
