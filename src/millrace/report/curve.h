// A diagram of curves as inline SVG: readable by itself, and interactive if a script reads its data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::report {

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string name;                          // for the legend; of several runs the same for each
  std::vector<Point> points;                 // x rises; values that are not finite make a gap
  int colour = -1;                           // related series share a colour; -1 = by position
  int dash = 0;                              // 0 = a solid line
  int run = 0;                               // series of a run are hidden together
  bool has_marks = false;                    // a mark at each point: the values of validations
  std::optional<Point> best = std::nullopt;  // gets a ring
};

enum class Axis : std::uint8_t { linear, logarithmic, share };  // share: from 0 to 1

struct Curve {
  std::string title;
  std::vector<Series> series;                      // in the order of their colours
  bool is_metric = false;                          // metrics between 0 and 1 share that axis, so that the eye can compare them
  bool rises = false;                              // its highest value is the best: never logarithmic by itself
  std::optional<double> best_step = std::nullopt;  // gets a line across
  std::vector<std::string> runs = {};              // their names, if there are several
  std::optional<std::pair<double, double>> steps = std::nullopt;  // of the axis; nullopt: those of the points
};

inline constexpr std::size_t kMostPoints = 400, kFewestPoints = 40;  // for a drawn series

// At most `most` points, including the least and greatest of each section, so that spikes stay visible.
[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most = kMostPoints);
// The means of `sections` sections of the points, or the points themselves if they are no more; what is not finite is skipped.
[[nodiscard]] std::vector<Point> averaged(const std::vector<Point>& points, std::size_t sections);
// True if a line through the points would look like a band; then their mean() is drawn over them.
[[nodiscard]] bool is_noisy(const std::vector<Point>& points);
// A hundred points of the moving average over a twenty-fifth of all points; points that are not finite are skipped.
[[nodiscard]] std::vector<Point> mean(const std::vector<Point>& points);
// Positions of an axis's marks: round numbers in [low, high], about `count` of them.
[[nodiscard]] std::vector<double> marks(double low, double high, int count);
// The axis that shows most of the curve: logarithmic if all values are positive and those of a series span so much that a linear
// axis would press many of them to its bottom; share for a metric whose values fill much of 0 to 1.
[[nodiscard]] Axis axis_of(const Curve& curve);

// Points per series on a page with `series` series: the more series, the fewer points.
[[nodiscard]] std::size_t points_for(std::size_t series);
// A <figure> with title, legend and <svg>; "" if there is nothing to draw. The points are in data-curve as JSON.
[[nodiscard]] std::string to_html(const Curve& curve, std::size_t most_points = kMostPoints);

}  // namespace millrace::report
