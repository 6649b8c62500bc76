#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/picture/detail/page.h"

namespace millrace::picture {
namespace {

using namespace detail;

constexpr double kPlotHeight = 420;

double x_of(const Series& series, std::size_t i) { return series.x.empty() ? static_cast<double>(i) : series.x[i]; }

void check(const Curves& what) {
  if (what.series.empty()) refuse(what.name, "has no curves", "give it one series or more, or do not draw it");
  for (const Series& series : what.series) {
    if (series.y.empty()) refuse(what.name, "has no values in series " + quoted(series.name), "remove the series");
    if (!series.x.empty() && series.x.size() != series.y.size()) {
      refuse(what.name,
             "has " + std::to_string(series.x.size()) + " x and " + std::to_string(series.y.size()) + " y values in series " +
                 quoted(series.name),
             "give as many x as y values, or no x values: then x is 0, 1, 2, …");
    }
  }
  check_axis(what.name, "x axis", what.x);
  check_axis(what.name, "y axis", what.y);
}

// Returns the axis's limits. Without limits returns the range of the values, with a small margin above and below if `air` is
// true.
Range range_of(const Axis& axis, const Span& span, bool air) {
  if (axis.limits) return *axis.limits;
  if (!span.any()) return axis.logarithmic ? Range{1, 10} : Range{0, 1};
  if (!air) return {span.low, span.high};
  if (axis.logarithmic)
    return {span.low / std::pow(span.high / span.low, 0.05), span.high * std::pow(span.high / span.low, 0.05)};
  const double gap = 0.05 * (span.high / 2 - span.low / 2) * 2;
  return {span.low - gap, span.high + gap};
}

// Adds at most four points in place of the points of `run`, which all lie in one column of pixels. The picture stays the same.
void add_run(std::vector<Point>& points, std::span<const Point> run) {
  if (run.size() <= 4) {
    points.insert(points.end(), run.begin(), run.end());
    return;
  }
  const auto [least, greatest] =
      std::minmax_element(run.begin(), run.end(), [](const Point& a, const Point& b) { return a.y < b.y; });
  points.insert(points.end(), {run.front(), *least, *greatest, run.back()});
}

std::vector<Point> points_of(const Series& series, const Ticks& x, const Ticks& y, const Box& box) {
  std::vector<Point> points;
  std::vector<Point> run;
  for (std::size_t i = 0; i < series.y.size(); ++i) {
    // A point far outside the box is moved nearer to the box, because the range of Cairo's coordinates is small. NaN stays NaN
    // and makes a gap.
    const double across = std::isfinite(x_of(series, i)) ? std::clamp(x.share(x_of(series, i)), -9.0, 10.0) : std::nan("");
    const double up = std::isfinite(series.y[i]) ? std::clamp(y.share(series.y[i]), -9.0, 10.0) : std::nan("");
    const Point point{box.left + across * box.width, box.bottom() - up * box.height};
    if (series.points) {
      points.insert(points.end(), {point, Point{std::nan(""), std::nan("")}});
      continue;
    }
    if (!run.empty() && (std::isnan(point.y) || std::floor(run.back().x) != std::floor(point.x))) {
      add_run(points, run);
      run.clear();
    }
    if (std::isnan(point.x) || std::isnan(point.y)) {
      points.push_back(point);
    } else {
      run.push_back(point);
    }
  }
  add_run(points, run);
  return points;
}

}  // namespace

Picture curves(const Curves& what) {
  check(what);
  Span xs;
  Span ys;
  std::int64_t hidden = 0;
  std::int64_t lost = 0;
  std::int64_t all = 0;
  std::vector<std::string> names;
  for (const Series& series : what.series) {
    names.push_back(series.name);
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      const double x = x_of(series, i);
      const double y = series.y[i];
      ++all;
      if (!std::isfinite(x) || !std::isfinite(y)) {
        ++lost;
      } else if ((what.x.logarithmic && x <= 0) || (what.y.logarithmic && y <= 0)) {
        ++hidden;
      } else {
        xs.add(x, what.x.logarithmic);
        ys.add(y, what.y.logarithmic);
      }
    }
  }
  const std::string caption =
      sentences({what.caption, not_finite(lost, all, "gaps"),
                 hidden == 0 ? ""
                             : with_commas(hidden) + " of " + with_commas(all) +
                                   " values are left out, because they are not above zero and an axis is logarithmic."});
  const Legend legend = legend_of(names.size() == 1 && names[0].empty() ? std::vector<std::string>{} : names);
  const Ticks y = ticks_up(what.y, range_of(what.y, ys, true), kPlotHeight);
  const double left = std::ceil(kMargin + kBesideAxis + widest(y) + 8);
  const Box box{left, std::ceil(Page::top(what.title) + legend.height + 6), std::floor(kWidth - kMargin - 16 - left),
                kPlotHeight};
  const Ticks x = ticks_across(what.x, range_of(what.x, xs, false), box.width);
  Page page(what.name, what.title, caption, legend.height + 6 + kPlotHeight + kBelowAxis + 6);
  Canvas& canvas = page.canvas();
  draw_legend(canvas, legend, Page::top(what.title), false);
  draw_sides(canvas, box, {.ticks = x, .axis = what.x}, {.ticks = y, .axis = what.y}, true);
  for (std::size_t i = 0; i < what.series.size(); ++i) {
    canvas.path(points_of(what.series[i], x, y, box), {.colour = line_colour(i), .width = 2.5, .dashed = i >= 8}, box);
  }
  return page.picture();
}

}  // namespace millrace::picture
