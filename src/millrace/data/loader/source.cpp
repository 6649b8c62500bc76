#include "millrace/data/loader/source.h"

#include <algorithm>
#include <cmath>

namespace millrace::data {

double most_bad(double fraction, std::int64_t all) noexcept {
  const double allowed = fraction * static_cast<double>(all);
  return allowed > 0 ? std::max(allowed, 1.0) : 0.0;
}

double fraction_for(std::int64_t bad, std::int64_t all) noexcept {
  return std::min(1.0, std::ceil(1e4 * static_cast<double>(bad) / static_cast<double>(all)) / 1e4);
}

}  // namespace millrace::data
