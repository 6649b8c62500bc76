// Draws curves as inline SVG. The diagram is readable by itself, and interactive if a script reads its data.
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
  std::string name;           // name in the legend; every run's series of the same kind has the same name
  std::vector<Point> points;  // x rises; a value that is not finite makes a gap
  int colour = -1;            // number of a colour, the same for related series; -1: the position in Curve::series decides
  int dash = 0;               // 0 = a solid line
  int run = 0;                // number of the run; all series of a run are shown or hidden together
  bool has_marks = false;     // draws a mark at each point, for the values of validations
  std::optional<Point> best = std::nullopt;  // a ring marks this point
};

enum class Axis : std::uint8_t { linear, logarithmic, share };  // share: the axis goes from 0 to 1

struct Curve {
  std::string title;
  std::vector<Series> series;                      // in the order of their colours
  bool is_metric = false;                          // true: if the values are between 0 and 1 and differ enough, the axis goes
                                                   // from 0 to 1, so that metrics can be compared
  bool rises = false;                              // the highest value is the best; axis_of() is then never logarithmic
  std::optional<double> best_step = std::nullopt;  // a line across the diagram marks this step
  std::vector<std::string> runs = {};              // names of the runs, if there are several
  std::optional<std::pair<double, double>> steps = std::nullopt;  // range of the axis; nullopt: the range of the points
};

inline constexpr std::size_t kColours = 12;  // number of series colours in the page's style; further series use the colours
                                             // again
inline constexpr std::size_t kMostPoints = 400, kFewestPoints = 40;  // the most and the fewest points of a drawn series

// Returns at most `most` points. They include the least and greatest point of each section, so that spikes stay visible. If a
// section has no finite value, they include its first point, so that a gap stays visible.
[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most = kMostPoints);
// Divides the points into `sections` sections and returns the mean of each. Returns the points themselves if there are no more
// than `sections`. Values that are not finite are skipped.
[[nodiscard]] std::vector<Point> averaged(const std::vector<Point>& points, std::size_t sections);
// True if a line through the points would look like a band. Their mean() is then drawn over them.
[[nodiscard]] bool is_noisy(const std::vector<Point>& points);
// The moving average of the points at about a hundred places, each over a twenty-fifth of all points. Points that are not finite
// are skipped.
[[nodiscard]] std::vector<Point> mean(const std::vector<Point>& points);
// Positions of an axis's marks: round numbers in [low, high], about `count` of them.
[[nodiscard]] std::vector<double> marks(double low, double high, int count);
// Chooses the axis that shows most of the curve. Logarithmic: if all values are positive, and a linear axis would show many
// values of a series at its bottom. Share: if the values of a metric cover much of the range 0 to 1.
[[nodiscard]] Axis axis_of(const Curve& curve);

// Points per series on a page with `series` series: the more series, the fewer points.
[[nodiscard]] std::size_t points_for(std::size_t series);
// A <figure> with title, legend and <svg>; "" if there is nothing to draw. The attribute data-curve contains the points as
// JSON.
[[nodiscard]] std::string to_html(const Curve& curve, std::size_t most_points = kMostPoints);

}  // namespace millrace::report
