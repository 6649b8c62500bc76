// The range of a curve's values.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/report/curve.h"

namespace millrace::report::detail {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool is_empty() const { return !(low <= high); }
  void widen() {
    if (low < high) return;
    constexpr double kLeast = 1e-300;  // a twentieth of a smaller value may be rounded to 0
    const double by = std::abs(low) < kLeast ? 1 : std::abs(low) * 0.05;
    low -= by;
    high += by;
  }
};

// True if a diagram can show the point. Huge values are not shown, because the difference of two values must be finite too.
inline bool is_drawn(const Point& point) { return std::abs(point.x) < 1e300 && std::abs(point.y) < 1e300; }

}  // namespace millrace::report::detail
