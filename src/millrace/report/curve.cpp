#include "millrace/report/curve.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/report/detail/range.h"
#include "millrace/report/html.h"

namespace millrace::report {
namespace {

using detail::is_drawn;
using detail::Range;

// Sizes in the SVG's own units; the page scales the SVG to its column. script.cpp draws with the same sizes.
constexpr double kWidth = 400, kHeight = 190, kLeft = 58, kRight = 20, kTop = 8, kBottom = 26;
constexpr std::size_t kDashes = 4;
constexpr std::size_t kMostMarks = 60;  // with more marks than this, the marks of a series would overlap

std::string coordinate(double value) { return fixed(value, 1); }

class Plot {
 public:
  Plot(Range x, Range y, Axis axis) : x_(x), y_(y), axis_(axis) {
    x_.widen();
    if (axis_ == Axis::logarithmic) {
      y_.low = std::log10(y_.low);
      y_.high = std::log10(y_.high);
    } else if (axis_ == Axis::share) {
      y_ = {.low = 0, .high = 1};
    }
    y_.widen();
    const double air = 0.04 * (y_.high - y_.low);
    y_.low -= air;
    y_.high += air;
  }
  [[nodiscard]] double px(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  [[nodiscard]] double py(double y) const {
    const double value = axis_ == Axis::logarithmic ? std::log10(y) : y;
    return kHeight - kBottom - (value - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  [[nodiscard]] std::string axes(const std::optional<double>& best_step) const {
    std::string svg;
    for (const double mark : y_marks()) {
      const std::string y = coordinate(py(mark));
      svg += "<line class=\"grid\" x1=\"" + coordinate(kLeft) + "\" x2=\"" + coordinate(kWidth - kRight) + "\" y1=\"" + y +
             "\" y2=\"" + y + "\"/><text class=\"mark\" x=\"" + coordinate(kLeft - 6) + "\" y=\"" + coordinate(py(mark) + 3.5) +
             "\" text-anchor=\"end\">" + escaped(label(mark)) + "</text>";
    }
    for (const double mark : marks(x_.low, x_.high, 5)) {
      svg += "<text class=\"mark\" x=\"" + coordinate(px(mark)) + "\" y=\"" + coordinate(kHeight - 8) +
             "\" text-anchor=\"middle\">" + escaped(label(mark)) + "</text>";
    }
    if (best_step && *best_step >= x_.low && *best_step <= x_.high) {
      svg += "<line class=\"best\" x1=\"" + coordinate(px(*best_step)) + "\" x2=\"" + coordinate(px(*best_step)) + "\" y1=\"" +
             coordinate(kTop) + "\" y2=\"" + coordinate(kHeight - kBottom) + "\"/>";
    }
    return svg;
  }
  [[nodiscard]] std::string path(const std::vector<Point>& points) const {
    std::string d;
    bool pen_down = false;
    for (const Point& point : points) {
      const bool drawn = has_place(point);
      if (drawn) d += (pen_down ? "L" : "M") + coordinate(px(point.x)) + " " + coordinate(py(point.y));
      pen_down = drawn;
    }
    return d;
  }
  [[nodiscard]] std::string circle(const Point& point, const std::string& look, const char* radius) const {
    if (!has_place(point)) return "";
    return "<circle class=\"" + look + "\" r=\"" + radius + "\" cx=\"" + coordinate(px(point.x)) + "\" cy=\"" +
           coordinate(py(point.y)) + "\"/>";
  }
  // Returns a mark for each point if `all`, otherwise only for points that no line shows because neither neighbour can be drawn.
  [[nodiscard]] std::string circles(const std::vector<Point>& points, const std::string& look, bool all) const {
    std::string svg;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const bool is_joined = (i > 0 && has_place(points[i - 1])) || (i + 1 < points.size() && has_place(points[i + 1]));
      if (all || !is_joined) svg += circle(points[i], look, "1.8");
    }
    return svg;
  }

 private:
  [[nodiscard]] bool has_place(const Point& point) const {
    return is_drawn(point) && (axis_ != Axis::logarithmic || point.y > 0);
  }
  static std::string label(double value) {
    if (value != 0 && (std::abs(value) >= 1e5 || std::abs(value) < 1e-3)) return significant(value, 2);
    return std::abs(value) >= 1e4 ? human_rate(value) : significant(value, 4);
  }
  [[nodiscard]] std::vector<double> y_marks() const {
    if (axis_ != Axis::logarithmic) return marks(y_.low, y_.high, 5);
    std::vector<double> all;
    const double step = std::max(1.0, std::ceil((y_.high - y_.low) / 5));
    const bool is_narrow = y_.high - y_.low < 1.7;  // a narrower range may contain fewer than two powers of ten
    for (double power = std::max(std::floor(y_.low), -300.0); power <= y_.high; power += step) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double mark = digit * std::pow(10, power);
        if ((digit == 1.0 || is_narrow) && std::log10(mark) >= y_.low && std::log10(mark) <= y_.high) all.push_back(mark);
      }
    }
    return all;
  }
  Range x_, y_;
  Axis axis_;
};

std::string look_of(const Series& series, std::size_t position) {
  const std::size_t colour = series.colour < 0 ? position : static_cast<std::size_t>(series.colour);
  const std::size_t dash = series.colour < 0 ? position / kColours : static_cast<std::size_t>(series.dash);
  return "c" + std::to_string(colour % kColours) + " d" + std::to_string(dash % kDashes);
}

std::string_view word_of(Axis axis) {
  if (axis == Axis::linear) return "linear";
  return axis == Axis::logarithmic ? "log" : "share";
}

// The points as [x, y]; y is null where the line has a gap.
Json json_of(const std::vector<Point>& points) {
  Json all = Json::array();
  for (const Point& point : points) {
    if (!is_drawn({point.x, 0})) continue;
    Json y = is_drawn(point) ? Json::parse(significant(point.y, 5), nullptr, false) : Json();
    all.push_back({Json::parse(significant(point.x, 9)), std::move(y)});
  }
  return all;
}

// A series as it is drawn.
struct Drawn {
  Series series;               // the series, thinned to the points that are drawn
  std::vector<Point> average;  // means of the series before it was thinned, for the script to smooth; empty: nothing was
                               // thinned, so the script smooths series.points
  std::vector<Point> mean;     // a smooth line that is drawn over a noisy series; empty: the series is not noisy
  std::string look;
};

Json data_of(const Curve& curve, const std::vector<Drawn>& all, Axis axis) {
  Json data = {{"axis", word_of(axis)}, {"series", Json::array()}};
  if (curve.steps) data["x"] = {curve.steps->first, curve.steps->second};
  if (curve.best_step) data["best"] = *curve.best_step;
  if (curve.is_metric) data["metric"] = true;
  for (const Drawn& drawn : all) {
    Json series = {{"name", drawn.series.name}, {"look", drawn.look}, {"points", json_of(drawn.series.points)}};
    if (!curve.runs.empty()) series["run"] = drawn.series.run;
    if (drawn.series.has_marks) series["marks"] = true;
    if (!drawn.mean.empty()) series["noisy"] = true;
    if (!drawn.average.empty()) series["average"] = json_of(drawn.average);
    if (drawn.series.best && is_drawn(*drawn.series.best)) series["best"] = json_of({*drawn.series.best}).front();
    data["series"].push_back(std::move(series));
  }
  return data;
}

std::string legend_of(const Curve& curve, const std::vector<Drawn>& all) {
  const auto entry = [](const std::string& look, const std::string& name, std::size_t i) {
    return "<span data-i=\"" + std::to_string(i) + "\"><svg class=\"key\" viewBox=\"0 0 16 4\"><path class=\"" + look +
           "\" d=\"M0 2L16 2\"/></svg>" + escaped(name) + "</span>";
  };
  std::string html;
  if (curve.runs.empty()) {
    for (std::size_t i = 0; i < all.size() && all.size() > 1; ++i) html += entry(all[i].look, all[i].series.name, i);
    return html;
  }
  std::vector<std::string> names;  // the legend leaves out the runs' names, because the page shows the names once for all
                                   // diagrams
  for (const Drawn& drawn : all) {
    if (std::ranges::find(names, drawn.series.name) != names.end()) continue;
    names.push_back(drawn.series.name);
    html += entry("soft" + drawn.look.substr(drawn.look.find(' ')), drawn.series.name, names.size() - 1);
  }
  return names.size() > 1 ? html : "";
}

std::vector<Drawn> drawn_of(const Curve& curve, std::size_t most_points, Range& x, Range& y) {
  std::vector<Drawn> all;
  for (std::size_t i = 0; i < curve.series.size(); ++i) {
    const Series& series = curve.series[i];
    Drawn drawn{.series = series, .average = {}, .mean = {}, .look = look_of(series, i)};
    drawn.series.points = thinned(series.points, most_points);
    if (drawn.series.points.size() < series.points.size()) drawn.average = averaged(series.points, most_points / 2);
    if (is_noisy(drawn.series.points)) drawn.mean = mean(series.points);
    if (series.points.size() > kMostMarks) drawn.series.has_marks = false;
    bool any = false;
    for (const Point& point : drawn.series.points) {
      if (!is_drawn(point)) continue;
      x.add(point.x);
      y.add(point.y);
      any = true;
    }
    if (any) all.push_back(std::move(drawn));
  }
  return all;
}

}  // namespace

std::string to_html(const Curve& curve, std::size_t most_points) {
  Range x, y;
  const std::vector<Drawn> all = drawn_of(curve, most_points, x, y);
  if (all.empty()) return "";
  const Axis axis = axis_of(curve);
  if (curve.steps) x = {.low = curve.steps->first, .high = curve.steps->second};
  const Plot plot(x, y, axis);
  std::string html = "<figure class=\"curve\" data-curve=\"" +
                     escaped(data_of(curve, all, axis).dump(-1, ' ', false, Json::error_handler_t::replace)) +
                     "\"><figcaption><b>" + escaped(curve.title) + "</b>";
  if (const std::string legend = legend_of(curve, all); !legend.empty()) html += "<span class=\"legend\">" + legend + "</span>";
  html += "</figcaption><svg class=\"plot\" viewBox=\"0 0 " + fixed(kWidth, 0) + " " + fixed(kHeight, 0) +
          "\" role=\"img\" aria-label=\"" + escaped(curve.title) + "\"><g class=\"axes\">" + plot.axes(curve.best_step) +
          "</g><g class=\"lines\">";
  for (const Drawn& drawn : all) {
    const auto& points = drawn.series.points;
    const bool is_single = std::ranges::count_if(points, is_drawn) == 1;
    if (is_single) {
      html += plot.circle(*std::ranges::find_if(points, is_drawn), drawn.look, "3");
    } else if (!drawn.mean.empty()) {
      html += "<path class=\"" + drawn.look + " raw\" d=\"" + plot.path(points) + "\"/>";
      html += "<path class=\"" + drawn.look + " mean\" d=\"" + plot.path(drawn.mean) + "\"/>";
    } else {
      html += "<path class=\"" + drawn.look + "\" d=\"" + plot.path(points) + "\"/>";
    }
    if (!is_single) html += plot.circles(points, drawn.look, drawn.series.has_marks);
    if (drawn.series.best) html += plot.circle(*drawn.series.best, drawn.look + " ring", "4.5");
  }
  return html + "</g></svg></figure>\n";
}

}  // namespace millrace::report
