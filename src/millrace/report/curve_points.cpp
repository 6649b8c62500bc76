// Chooses the points of a curve that are drawn, and the axis.
#include <algorithm>
#include <cmath>

#include "millrace/report/curve.h"
#include "millrace/report/detail/range.h"

namespace millrace::report {

using detail::is_drawn;
using detail::Range;

namespace {

constexpr std::size_t kManyPoints = 100;

// Returns the value that is greater than `share` of the sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

bool is_pressed_down(const std::vector<double>& sorted) {
  const double low = sorted.front(), high = sorted.back();
  if (!(low > 0 && high > low)) return false;
  const auto place = [&](double share) { return (quantile(sorted, share) - low) / (high - low); };
  // A linear axis hides too much if half of the points lie below the fraction kHalfBelow of its height, or a quarter below the
  // fraction kQuarterBelow.
  constexpr double kHalfBelow = 0.2, kQuarterBelow = 0.03;
  return (high >= 5 * low && place(0.5) < kHalfBelow) || (high >= 30 * low && place(0.25) < kQuarterBelow);
}

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
  if (points.size() <= most || most < 2) return points;
  const std::size_t stretches = most / 2;
  std::vector<Point> kept;
  kept.reserve(most);
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / stretches);
    auto least = end, greatest = end;
    for (auto point = begin; point != end; ++point) {
      if (!is_drawn(*point)) continue;
      if (least == end || point->y < least->y) least = point;
      if (greatest == end || point->y > greatest->y) greatest = point;
    }
    if (least == end) {
      kept.push_back(*begin);
      continue;
    }
    kept.push_back(least < greatest ? *least : *greatest);
    if (least != greatest) kept.push_back(least < greatest ? *greatest : *least);
  }
  return kept;
}

std::vector<Point> averaged(const std::vector<Point>& points, std::size_t sections) {
  std::vector<Point> drawn;
  std::ranges::copy_if(points, std::back_inserter(drawn), is_drawn);
  if (drawn.size() <= sections || sections == 0) return drawn;
  std::vector<Point> means;
  for (std::size_t i = 0; i < sections; ++i) {
    const std::size_t begin = drawn.size() * i / sections, end = drawn.size() * (i + 1) / sections;
    Point sum;
    for (std::size_t k = begin; k < end; ++k) {
      sum.x += drawn[k].x / static_cast<double>(end - begin);
      sum.y += drawn[k].y / static_cast<double>(end - begin);
    }
    means.push_back(sum);
  }
  return means;
}

bool is_noisy(const std::vector<Point>& points) {
  if (points.size() < kManyPoints) return false;
  constexpr double kTimes = 8;  // a series is a band if its ups and downs add up to more than this multiple of its range
  double way = 0, last = 0;
  Range range;
  for (const Point& point : points) {
    if (!is_drawn(point)) continue;
    if (!range.is_empty()) way += std::abs(point.y - last);
    last = point.y;
    range.add(point.y);
  }
  return !range.is_empty() && way > kTimes * (range.high - range.low);
}

std::vector<Point> mean(const std::vector<Point>& points) {
  std::vector<Point> drawn;
  std::ranges::copy_if(points, std::back_inserter(drawn), is_drawn);
  constexpr std::size_t kWide = 50;  // the moving average covers 1/kWide of all points on each side
  const std::size_t count = drawn.size(), each = std::max<std::size_t>(1, count / kManyPoints);
  const std::size_t wide = std::max<std::size_t>(1, count / kWide);
  std::vector<Point> means;
  for (std::size_t i = 0; i < count; i += each) {
    const std::size_t begin = i < wide ? 0 : i - wide, end = std::min(count, i + wide + 1);
    double sum = 0;
    for (std::size_t k = begin; k < end; ++k) sum += drawn[k].y / static_cast<double>(end - begin);
    means.push_back({drawn[i].x, sum});
  }
  return means;
}

std::vector<double> marks(double low, double high, int count) {
  std::vector<double> all;
  if (!(low < high) || !std::isfinite(high - low) || count < 1) return all;
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= rough) {
      step = digit * power;
      break;
    }
  }
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * count && (first + i) * step <= high + 1e-9 * step; ++i) all.push_back((first + i) * step + 0.0);
  return all;
}

Axis axis_of(const Curve& curve) {
  Range all;
  bool pressed_down = false;
  for (const Series& series : curve.series) {
    std::vector<double> values;
    for (const Point& point : series.points) {
      if (is_drawn(point)) values.push_back(point.y);
    }
    if (values.empty()) continue;
    std::ranges::sort(values);
    all.add(values.front());
    all.add(values.back());
    pressed_down = pressed_down || is_pressed_down(values);
  }
  if (!curve.rises && pressed_down && all.low > 0) return Axis::logarithmic;
  constexpr double kMuch = 0.2;  // if a curve covers less than this share of the range 0 to 1, it would look flat there
  return curve.is_metric && all.low >= 0 && all.high <= 1 && all.high - all.low >= kMuch ? Axis::share : Axis::linear;
}

std::size_t points_for(std::size_t series) {
  constexpr std::size_t kOfAPage = 16'000;  // number of points on a page; each point takes about forty bytes
  return std::clamp(kOfAPage / std::max<std::size_t>(series, 1), kFewestPoints, kMostPoints);
}

}  // namespace millrace::report
