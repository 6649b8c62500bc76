// How often each class was predicted for each true class, and the metrics that follow from these counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::metrics {

struct Confusion {
  std::string name;                  // "confusion", or "<name>/confusion"
  std::vector<std::string> classes;  // K names
  std::vector<std::int64_t> counts;  // K * K, row by row: a row is a true class, a column a predicted class

  [[nodiscard]] std::int64_t count(std::size_t truth, std::size_t predicted) const {
    return counts[truth * classes.size() + predicted];
  }
  [[nodiscard]] std::int64_t total() const;
  // Share of the samples that were predicted right. This and the shares below are NaN if nothing was counted.
  [[nodiscard]] double accuracy() const;
  [[nodiscard]] double balanced_accuracy() const;               // the mean recall of the classes that have labels
  [[nodiscard]] double recall(std::size_t truth) const;         // share of this class's samples that were predicted as this class
  [[nodiscard]] double precision(std::size_t predicted) const;  // share of this class's predictions that are right
  // The harmonic mean of recall and precision: 2 hits / (labels + predictions) of the class. NaN if the class has no labels and
  // no predictions.
  [[nodiscard]] double f1(std::size_t of_class) const;
  [[nodiscard]] double macro_f1() const;  // mean f1 of the classes that have labels or predictions, as in scikit-learn
};

}  // namespace millrace::metrics
