// A diagram of curves as inline SVG: readable by itself, and interactive if a script reads its data.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::report {

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;           // for the legend
  std::vector<Point> points;  // x rises; values that are not finite make a gap
  int colour = -1;            // related series share a colour; -1 = by position
  int dash = 0;               // 0 = a solid line
};

struct Curve {
  std::string title;
  std::vector<Series> series;  // in the order of their colours
};

inline constexpr std::size_t kMostPoints = 400, kFewestPoints = 40;  // for a drawn series

// At most `most` points, including the least and greatest of each section, so that spikes stay visible.
[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most = kMostPoints);
// True if a line through the points would look like a band; then their mean() is drawn over them.
[[nodiscard]] bool is_noisy(const std::vector<Point>& points);
// A hundred points of the moving average over a twenty-fifth of all points; points that are not finite are skipped.
[[nodiscard]] std::vector<Point> mean(const std::vector<Point>& points);
// Positions of an axis's marks: round numbers in [low, high], about `count` of them.
[[nodiscard]] std::vector<double> marks(double low, double high, int count);
// Whether the curve's axis of values is logarithmic: all values are positive and span more than a factor of 30.
[[nodiscard]] bool is_logarithmic(const Curve& curve);

// Points per series on a page with `series` series: the more series, the fewer points.
[[nodiscard]] std::size_t points_for(std::size_t series);
// A <figure> with title, legend and <svg>; "" if there is nothing to draw. The points are in data-curve as JSON.
[[nodiscard]] std::string to_html(const Curve& curve, std::size_t most_points = kMostPoints);

}  // namespace millrace::report
