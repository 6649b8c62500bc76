#include "millrace/metrics/figure.h"

#include <cmath>

#include "millrace/base/format.h"

namespace millrace::metrics {

std::string figure_of(std::string_view metric, double value) {
  constexpr double kMost = 9e15;  // up to here a double is exact in all digits
  const bool is_count = metric.find("/units") != std::string_view::npos && std::abs(value) < kMost && std::trunc(value) == value;
  return is_count ? with_commas(static_cast<std::int64_t>(value)) : figure(value);
}

}  // namespace millrace::metrics
