#include "millrace/metrics/confusion.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace millrace::metrics {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::int64_t Confusion::total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

double Confusion::accuracy() const {
  std::int64_t right = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) right += count(i, i);
  return share(right, total());
}

double Confusion::recall(std::size_t truth) const {
  std::int64_t all = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) all += count(truth, i);
  return share(count(truth, truth), all);
}

double Confusion::precision(std::size_t predicted) const {
  std::int64_t all = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) all += count(i, predicted);
  return share(count(predicted, predicted), all);
}

double Confusion::balanced_accuracy() const {
  double sum = 0;
  double present = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const double own = recall(i);
    if (std::isnan(own)) continue;
    sum += own;
    present += 1;
  }
  return present > 0 ? sum / present : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace millrace::metrics
