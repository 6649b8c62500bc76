#include "millrace/picture/detail/ticks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "millrace/base/format.h"

namespace millrace::picture::detail {
namespace {

constexpr double kFar = 1e300;  // a limit for values, so that differences of two values stay finite

// Returns the least number of the form 1, 2, 5 or 10 times a power of ten that is not below `step`.
double round_up(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

Range widened(Range range) {
  range.low = std::clamp(range.low, -kFar, kFar);
  range.high = std::clamp(range.high, -kFar, kFar);
  const double size = std::max(std::abs(range.low), std::abs(range.high));
  if (range.high - range.low > size * 1e-9 && range.high - range.low > 1e-300) return range;
  const double around = size > 1e-290 ? size / 2 : 1;
  return {range.low - around, range.high + around};
}

std::string number(double value, int digits) {
  std::string text = fixed(value, digits);
  if (text.find_first_not_of("-0.") == std::string::npos && text.starts_with('-')) text.erase(0, 1);
  if (text.starts_with('-')) text.replace(0, 1, "−");
  return text;
}

}  // namespace

double Ticks::share(double value) const {
  if (!logarithmic) return (value - range.low) / (range.high - range.low);
  if (!(value > 0)) return std::nan("");
  return (std::log10(value) - std::log10(range.low)) / (std::log10(range.high) - std::log10(range.low));
}

Ticks linear_ticks(Range range, int most, bool whole) {
  Ticks ticks{.range = widened(range), .logarithmic = false, .marks = {}};
  const double span = ticks.range.high - ticks.range.low;
  double step = round_up(span / std::max(most, 1));
  if (whole) step = std::max(step, 1.0);
  const double size = std::max(std::abs(ticks.range.low), std::abs(ticks.range.high));
  if (size >= 99999.5 || size < 1e-3) ticks.exponent = static_cast<int>(std::floor(std::log10(size) + 1e-9));
  const double unit = std::pow(10.0, ticks.exponent);
  const int digits = std::clamp(-static_cast<int>(std::floor(std::log10(step / unit) + 1e-9)), 0, 15);
  const double first = std::ceil(ticks.range.low / step - 1e-9);
  for (int i = 0; i <= most + 1; ++i) {
    const double value = (first + i) * step;
    if (value > ticks.range.high + step * 1e-9) break;
    ticks.marks.push_back({value, number(value / unit, digits)});
  }
  return ticks;
}

Ticks log_ticks(Range range, int most) {
  range.low = std::clamp(range.low, 1e-300, kFar);
  range.high = std::clamp(range.high, range.low, kFar);
  if (range.high < range.low * 1.001) range = {range.low / 2, range.high * 2};
  Ticks ticks{.range = range, .logarithmic = true, .marks = {}};
  const int first = static_cast<int>(std::floor(std::log10(range.low) + 1e-9));
  const int last = static_cast<int>(std::ceil(std::log10(range.high) - 1e-9));
  const int every = std::max(1, (last - first + most) / std::max(most, 1));
  const bool is_short = last - first <= 2;
  const auto inside = [&](double value) { return value >= range.low * (1 - 1e-9) && value <= range.high * (1 + 1e-9); };
  for (int power = first; power <= last; ++power) {
    const double decade = std::pow(10.0, power);
    const bool plain = is_short && power >= -3 && power < 5;  // 0.2 is easier to read than 2·10⁻¹
    for (int factor = 1; factor < 10; ++factor) {
      const double value = factor * decade;
      if (!inside(value) || (factor > 1 && every > 1)) continue;
      std::string label;
      if (factor == 1 && (power - first) % every == 0)
        label = plain ? number(value, std::max(0, -power)) : "10" + superscript(power);
      if (is_short && (factor == 2 || factor == 5)) {
        label = plain ? number(value, std::max(0, -power)) : std::to_string(factor) + "·10" + superscript(power);
      }
      ticks.marks.push_back({value, std::move(label)});
    }
  }
  return ticks;
}

void Span::add(double value, bool logarithmic) {
  if (!std::isfinite(value) || (logarithmic && !(value > 0))) {
    ++left_out;
    return;
  }
  low = used == 0 ? value : std::min(low, value);
  high = used == 0 ? value : std::max(high, value);
  ++used;
}

std::string axis_text(const Axis& axis, int exponent) {
  const std::string power = exponent == 0 ? "" : "10" + superscript(exponent);
  if (power.empty() && axis.unit.empty()) return axis.label;
  const std::string blank = power.empty() || axis.unit.empty() ? "" : " ";
  return axis.label + (axis.label.empty() ? "(" : " (") + (axis.unit.empty() ? "× " : "") + power + blank + axis.unit + ")";
}

std::string superscript(int exponent) {
  constexpr std::array<const char*, 10> kDigits{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "⁻" : "";
  for (const char digit : std::to_string(std::abs(exponent))) text += kDigits.at(static_cast<std::size_t>(digit - '0'));
  return text;
}

}  // namespace millrace::picture::detail
