#include "millrace/metrics/confusion.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace millrace::metrics {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(part) / static_cast<double>(whole);
}

// The mean of the values that of(0), of(1), … return; NaN values are left out.
template <class Of>
double mean_of_numbers(std::size_t size, const Of& of) {
  double sum = 0;
  double present = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double own = of(i);
    if (std::isnan(own)) continue;
    sum += own;
    present += 1;
  }
  return present > 0 ? sum / present : std::numeric_limits<double>::quiet_NaN();
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

double Confusion::f1(std::size_t of_class) const {
  std::int64_t all = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) all += count(of_class, i) + count(i, of_class);
  return share(2 * count(of_class, of_class), all);
}

double Confusion::balanced_accuracy() const {
  return mean_of_numbers(classes.size(), [this](std::size_t i) { return recall(i); });
}

double Confusion::macro_f1() const {
  return mean_of_numbers(classes.size(), [this](std::size_t i) { return f1(i); });
}

}  // namespace millrace::metrics
