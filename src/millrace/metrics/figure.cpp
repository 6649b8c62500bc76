#include "millrace/metrics/figure.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "millrace/base/format.h"

namespace millrace::metrics {
namespace {

// True for the counts of Board::add_bits_per_event, but not for the metrics of a class named "units", such as "recall/units".
bool counts_units(std::string_view metric) {
  const std::size_t slash = metric.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view group = metric.substr(0, slash), last = metric.substr(slash + 1);
  if (last != "units" && last != "units_left_out" && last != "units_below_0") return false;
  return !group.ends_with("recall") && !group.ends_with("precision") && !group.ends_with("f1");
}

}  // namespace

std::string figure_of(std::string_view metric, double value) {
  constexpr double kMost = 9e15;  // below this number a double holds every integer exactly
  const bool is_count = counts_units(metric) && std::abs(value) < kMost && std::trunc(value) == value;
  return is_count ? with_commas(static_cast<std::int64_t>(value)) : figure(value);
}

}  // namespace millrace::metrics
