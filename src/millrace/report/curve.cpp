#include "millrace/report/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/report/html.h"

namespace millrace::report {
namespace {

// In the SVG's own units; the page scales the SVG to its column.
constexpr double kWidth = 400, kHeight = 190, kLeft = 58, kRight = 20, kTop = 8, kBottom = 26;
constexpr double kSpan = 30;
constexpr std::size_t kColours = 6;
constexpr std::size_t kDashes = 4;
constexpr std::size_t kManyPoints = 100;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool is_empty() const { return !(low <= high); }
  void widen() {
    if (low < high) return;
    constexpr double kLeast = 1e-300;  // below it a twentieth may be 0
    const double by = std::abs(low) < kLeast ? 1 : std::abs(low) * 0.05;
    low -= by;
    high += by;
  }
};

// Leaves out huge values: the difference of two values must be finite too.
bool is_drawn(const Point& point) { return std::abs(point.x) < 1e300 && std::abs(point.y) < 1e300; }

std::string coordinate(double value) { return fixed(value, 1); }

class Plot {
 public:
  Plot(Range x, Range y, bool logarithmic) : x_(x), y_(y), logarithmic_(logarithmic) {
    x_.widen();
    if (logarithmic_) {
      y_.low = std::log10(y_.low);
      y_.high = std::log10(y_.high);
    }
    y_.widen();
    const double air = 0.04 * (y_.high - y_.low);
    y_.low -= air;
    y_.high += air;
  }
  [[nodiscard]] double px(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  [[nodiscard]] double py(double y) const {
    const double value = logarithmic_ ? std::log10(y) : y;
    return kHeight - kBottom - (value - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  [[nodiscard]] std::string axes() const {
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
    return svg;
  }
  [[nodiscard]] std::string path(const std::vector<Point>& points) const {
    std::string d;
    bool pen_down = false;
    for (const Point& point : points) {
      const bool drawn = is_drawn(point) && (!logarithmic_ || point.y > 0);
      if (drawn) d += (pen_down ? "L" : "M") + coordinate(px(point.x)) + " " + coordinate(py(point.y));
      pen_down = drawn;
    }
    return d;
  }

 private:
  static std::string label(double value) {
    if (value != 0 && (std::abs(value) >= 1e5 || std::abs(value) < 1e-3)) return significant(value, 2);
    return std::abs(value) >= 1e4 ? human_rate(value) : significant(value, 4);
  }
  [[nodiscard]] std::vector<double> y_marks() const {
    if (!logarithmic_) return marks(y_.low, y_.high, 5);
    std::vector<double> all;
    const double step = std::max(1.0, std::ceil((y_.high - y_.low) / 5));
    for (double power = std::max(std::ceil(y_.low), -300.0); power <= y_.high; power += step) all.push_back(std::pow(10, power));
    return all;
  }
  Range x_, y_;
  bool logarithmic_;
};

Json data_of(const Curve& curve, bool logarithmic) {
  Json data = {{"log", logarithmic}, {"series", Json::array()}};
  for (const Series& series : curve.series) {
    Json points = Json::array();
    for (const Point& point : series.points) {
      if (is_drawn(point)) points.push_back({point.x, Json::parse(significant(point.y, 5), nullptr, false)});
    }
    data["series"].push_back({{"name", series.name}, {"points", std::move(points)}});
  }
  return data;
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
    if (least == end) continue;
    kept.push_back(least < greatest ? *least : *greatest);
    if (least != greatest) kept.push_back(least < greatest ? *greatest : *least);
  }
  return kept;
}

bool is_noisy(const std::vector<Point>& points) {
  if (points.size() < kManyPoints) return false;
  constexpr double kTimes = 8;  // a band's values go up and down by this many times their range, in all
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
  for (const Point& point : points) {
    if (is_drawn(point)) drawn.push_back(point);
  }
  constexpr std::size_t kWide = 50;  // the mean reaches this fraction of all points to each side
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

bool is_logarithmic(const Curve& curve) {
  Range range;
  for (const Series& series : curve.series) {
    for (const Point& point : series.points) {
      if (is_drawn(point)) range.add(point.y);
    }
  }
  return !range.is_empty() && range.low > 0 && range.high > kSpan * range.low;
}

std::size_t points_for(std::size_t series) {
  constexpr std::size_t kOfAPage = 16'000;  // some forty bytes each
  return std::clamp(kOfAPage / std::max<std::size_t>(series, 1), kFewestPoints, kMostPoints);
}

std::string to_html(const Curve& given, std::size_t most_points) {
  Curve curve{.title = given.title, .series = {}};
  Range x, y;
  for (const Series& series : given.series) {
    Series some = series;
    some.points = thinned(series.points, most_points);
    bool any = false;
    for (const Point& point : some.points) {
      if (!is_drawn(point)) continue;
      x.add(point.x);
      y.add(point.y);
      any = true;
    }
    if (any) curve.series.push_back(std::move(some));
  }
  if (curve.series.empty()) return "";
  const bool logarithmic = is_logarithmic(curve);
  const Plot plot(x, y, logarithmic);
  std::string html = "<figure class=\"curve\" data-curve=\"" +
                     escaped(data_of(curve, logarithmic).dump(-1, ' ', false, Json::error_handler_t::replace)) +
                     "\"><figcaption><b>" + escaped(curve.title) + "</b><span class=\"legend\">";
  const auto look = [&](std::size_t i) {
    const Series& series = curve.series[i];
    const std::size_t colour = series.colour < 0 ? i : static_cast<std::size_t>(series.colour);
    return "c" + std::to_string(colour % kColours) + " d" + std::to_string(static_cast<std::size_t>(series.dash) % kDashes);
  };
  for (std::size_t i = 0; i < curve.series.size() && curve.series.size() > 1; ++i)
    html += "<span><svg class=\"key\" viewBox=\"0 0 16 4\"><path class=\"" + look(i) + "\" d=\"M0 2L16 2\"/></svg>" +
            escaped(curve.series[i].name) + "</span>";
  html += "</span></figcaption><svg class=\"plot\" viewBox=\"0 0 " + fixed(kWidth, 0) + " " + fixed(kHeight, 0) +
          "\" role=\"img\" aria-label=\"" + escaped(curve.title) + "\"><g class=\"axes\">" + plot.axes() + "</g>";
  for (std::size_t i = 0; i < curve.series.size(); ++i) {
    const auto& points = curve.series[i].points;
    const std::string of = "\" data-i=\"" + std::to_string(i) + "\" d=\"";
    if (points.size() == 1) {
      html += "<circle class=\"" + look(i) + "\" r=\"3\" cx=\"" + coordinate(plot.px(points[0].x)) + "\" cy=\"" +
              coordinate(plot.py(points[0].y)) + "\"/>";
    } else if (is_noisy(points)) {
      html += "<path class=\"" + look(i) + " raw" + of + plot.path(points) + "\"/>";
      html += "<path class=\"" + look(i) + " mean" + of + plot.path(mean(points)) + "\"/>";
    } else {
      html += "<path class=\"" + look(i) + of + plot.path(points) + "\"/>";
    }
  }
  return html + "</svg></figure>\n";
}

}  // namespace millrace::report
