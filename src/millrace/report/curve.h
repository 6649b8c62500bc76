// A diagram of curves as inline SVG: readable as it stands, and alive where a script reads its data.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::report {

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;           // of its legend
  std::vector<Point> points;  // x rises; values that are not finite make a gap
  int colour = -1;            // those of one thing have one; -1 = by its place
  int dash = 0;               // 0 = a whole line
};

struct Curve {
  std::string title;
  std::vector<Series> series;  // in the order of their colours
};

inline constexpr std::size_t kMostPoints = 400, kFewestPoints = 40;  // of a series that is drawn

// At most `most` points, the least and the greatest of each stretch among them, so that a spike stays.
[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most = kMostPoints);
// Whether a line through the points is a band: then their mean() is drawn over them.
[[nodiscard]] bool is_noisy(const std::vector<Point>& points);
// A hundred points of the moving average over a twenty-fifth of all; points that are not finite are left out.
[[nodiscard]] std::vector<Point> mean(const std::vector<Point>& points);
// Where the marks of an axis stand: round numbers in [low, high], about `count` of them.
[[nodiscard]] std::vector<double> marks(double low, double high, int count);
// Whether its values are drawn on a logarithmic axis: all are positive and they span more than a factor of 30.
[[nodiscard]] bool is_logarithmic(const Curve& curve);

// Points of a series where a page has so many series: fewer, the more there are.
[[nodiscard]] std::size_t points_for(std::size_t series);
// A <figure> with title, legend and <svg>; "" when there is nothing to draw. The points are in data-curve as JSON.
[[nodiscard]] std::string to_html(const Curve& curve, std::size_t most_points = kMostPoints);

}  // namespace millrace::report
