#include "millrace/base/axis_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr int kDigits = 6;
constexpr double kEven = 1e-3;  // if steps differ by at most this fraction of their mean, they count as equal

double step_at(std::span<const double> values, std::size_t i, double period) {
  const double step = values[i] - values[i - 1];
  return period > 0 ? std::remainder(step, period) : step;
}

std::string steps_text(std::span<const double> values, double period) {
  double least = std::abs(step_at(values, 1, period)), most = least, sum = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double step = std::abs(step_at(values, i, period));
    least = std::min(least, step);
    most = std::max(most, step);
    sum += step;
  }
  const double mean = sum / static_cast<double>(values.size() - 1);
  // Rounding to f32 moves each number by at most half of this value.
  const double rounding = std::numeric_limits<float>::epsilon() * std::max(std::abs(values.front()), std::abs(values.back()));
  if (most - least <= kEven * mean + 2 * rounding) return significant(mean, kDigits);
  return significant(least, kDigits) + " to " + significant(most, kDigits);
}

}  // namespace

int direction_of(std::span<const double> values, double period) {
  bool up = values.size() > 1, down = up;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double step = step_at(values, i, period);
    up = up && step > 0;
    down = down && step < 0;
  }
  return up ? 1 : down ? -1 : 0;
}

std::string axis_text(std::span<const double> values, const std::string& unit, double period) {
  if (values.empty()) return "";
  const std::string of_unit = unit.empty() ? "" : " " + unit;
  if (values.size() == 1) return significant(values.front(), kDigits) + of_unit;
  std::string text = significant(values.front(), kDigits) + " to " + significant(values.back(), kDigits) + of_unit;
  const int direction = direction_of(values, period);
  if (direction == 0) return text + " in no order";
  return text + (direction > 0 ? " ascending" : " descending") + " in steps of " + steps_text(values, period);
}

}  // namespace millrace
