// Which class was told for which, counted; and what follows from the counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::metrics {

struct Confusion {
  std::string name;                  // "confusion", or "<name>/confusion"
  std::vector<std::string> classes;  // K names
  std::vector<std::int64_t> counts;  // K * K, row by row: a row is a true class, a column a predicted one

  [[nodiscard]] std::int64_t count(std::size_t truth, std::size_t predicted) const {
    return counts[truth * classes.size() + predicted];
  }
  [[nodiscard]] std::int64_t total() const;
  // The share of a sum in which nothing was counted is NaN.
  [[nodiscard]] double accuracy() const;
  [[nodiscard]] double balanced_accuracy() const;               // the mean recall of the classes that have labels
  [[nodiscard]] double recall(std::size_t truth) const;         // of what is of this class, the share predicted as such
  [[nodiscard]] double precision(std::size_t predicted) const;  // of what was predicted as this class, the share that is
};

}  // namespace millrace::metrics
