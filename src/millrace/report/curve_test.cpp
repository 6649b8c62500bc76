#include "millrace/report/curve.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "millrace/report/detail/assets.h"

namespace millrace::report {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Point> wave(std::size_t count) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < count; ++i) points.push_back({static_cast<double>(i), std::sin(static_cast<double>(i))});
  return points;
}

TEST(Thinned, KeepsSpikesOrderAndShortSeries) {
  std::vector<Point> points = wave(100'000);
  points[31'415].y = 50;
  points[77'777].y = -50;
  const std::vector<Point> few = thinned(points, 400);
  EXPECT_LE(few.size(), 400U);
  EXPECT_GE(few.size(), 300U);
  double least = 0, greatest = 0;
  for (std::size_t i = 0; i < few.size(); ++i) {
    least = std::min(least, few[i].y);
    greatest = std::max(greatest, few[i].y);
    if (i > 0) {
      EXPECT_LT(few[i - 1].x, few[i].x);
    }
  }
  EXPECT_EQ(least, -50);
  EXPECT_EQ(greatest, 50);
  EXPECT_EQ(thinned(wave(400), 400).size(), 400U);
}

TEST(Marks, AreRoundAndInside) {
  EXPECT_THAT(marks(0, 100, 5), testing::ElementsAre(0, 20, 40, 60, 80, 100));
  for (const auto& [low, high] : {std::pair{1.0, 1.0}, std::pair{2.0, 1.0}, std::pair{kNan, 1.0}, std::pair{-1e308, 1e308}})
    EXPECT_THAT(marks(low, high, 5), testing::IsEmpty());
}

// A curve of 300 points.
Curve curve_of(const std::function<double(double)>& value, bool is_metric = false, bool rises = false) {
  Curve curve{.title = "t", .series = {{.name = "a", .points = {}}}, .is_metric = is_metric, .rises = rises};
  for (int i = 0; i < 300; ++i) curve.series[0].points.push_back({1.0 * i, value(i / 300.0)});
  return curve;
}

TEST(Curve, TheDataChooseTheAxis) {
  EXPECT_EQ(axis_of(curve_of([](double t) { return 0.0041 + 0.04 * std::exp(-12 * t); })), Axis::logarithmic)
      << "a loss that fell";
  EXPECT_EQ(axis_of(curve_of([](double t) { return 1.5 + 2 * std::exp(-8 * t); })), Axis::linear) << "no decades";
  const auto warm_up_and_cosine = [](double t) {
    return t < 0.1 ? t + 1e-8 : 0.5 * (1 + std::cos(M_PI * (t - 0.1) / 0.9)) + 1e-8;
  };
  EXPECT_EQ(axis_of(curve_of(warm_up_and_cosine)), Axis::linear) << "though it spans eight decades";
  EXPECT_EQ(axis_of(curve_of([](double t) { return std::pow(0.1, std::floor(4 * t)); })), Axis::logarithmic) << "a rate in steps";
  EXPECT_EQ(axis_of(curve_of([](double t) { return -std::exp(-9 * t); })), Axis::linear) << "not positive";
  const auto accuracy = [](double t) { return 0.02 + 0.9 * (1 - std::exp(-9 * t)); };
  EXPECT_EQ(axis_of(curve_of(accuracy, true, true)), Axis::share);
  EXPECT_EQ(axis_of(curve_of(accuracy)), Axis::linear) << "no metric";
  EXPECT_EQ(axis_of(curve_of([](double t) { return 0.98 + 0.01 * t; }, true, true)), Axis::linear) << "a flat line from 0 to 1";
  EXPECT_EQ(axis_of(curve_of([](double t) { return 0.001 + 0.9 * std::exp(-20 * t); }, true)), Axis::logarithmic);
  EXPECT_EQ(axis_of(curve_of([](double t) { return t < 0.7 ? 0.001 : 0.3; }, true, true)), Axis::share) << "highest is best";
  EXPECT_EQ(axis_of({.title = "t", .series = {}}), Axis::linear);
}

TEST(Curve, HasNoCoordinateThatIsNoNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<Point>& points : {std::vector<Point>{{1, -1e308}, {2, 1e308}},
                                           {{-1e308, 1}, {1e308, 2}},
                                           {{1, 5e-324}, {2, 1e308}},
                                           {{1, kNan}, {2, 3}, {3, inf}, {4, 4}},
                                           {{1, 0}, {1, 0}},
                                           {{1, 7}}}) {
    std::string html = to_html({.title = "t", .series = {{.name = "a", .points = points}}});
    html.erase(0, html.find("<svg"));
    EXPECT_THAT(html, testing::AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
  EXPECT_EQ(to_html({.title = "t", .series = {{.name = "a", .points = {{1, kNan}}}}}), "");
}

TEST(Curve, ABandHasItsMeanOverIt) {
  std::vector<Point> noise, smooth;
  for (int i = 0; i < 400; ++i) {
    noise.push_back({1.0 * i, 5 + (i % 2 == 0 ? 1.0 : -1.0)});
    smooth.push_back({1.0 * i, 0.1 * i});
  }
  EXPECT_TRUE(is_noisy(noise));
  EXPECT_FALSE(is_noisy(smooth));
  EXPECT_FALSE(is_noisy({noise.begin(), noise.begin() + 20}));
  const std::vector<Point> means = mean(noise);
  EXPECT_EQ(means.size(), 100U);
  for (const Point& point : means) EXPECT_NEAR(point.y, 5, 0.15);
  EXPECT_THAT(to_html({.title = "t", .series = {{.name = "a", .points = noise}}}),
              testing::AllOf(HasSubstr("c0 d0 raw"), HasSubstr("c0 d0 mean")));
  EXPECT_THAT(to_html({.title = "t", .series = {{.name = "a", .points = smooth}}}), Not(HasSubstr("mean")));
}

// The script draws the curve again from its data, so the data must have the gaps of the first drawing.
TEST(Curve, HasAGapWhereAValueIsNotFinite) {
  const std::vector<Point> points = {{1, 5}, {2, 4}, {3, kNan}, {4, 3}, {5, std::numeric_limits<double>::infinity()},
                                     {6, 2}, {7, 1}};
  const auto count = [](const std::string& html, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++found;
    return found;
  };
  const std::string html = to_html({.title = "t", .series = {{.name = "a", .points = points}}});
  EXPECT_THAT(html, HasSubstr("&quot;points&quot;:[[1,5],[2,4],[3,null],[4,3],[5,null],[6,2],[7,1]]"));
  const std::string path = html.substr(html.find("<path"));
  EXPECT_EQ(count(path.substr(0, path.find("/>")), "M"), 3U) << path;
  EXPECT_EQ(count(html, "<circle"), 1U) << "the point between two gaps";
  const std::string one = to_html({.title = "t", .series = {{.name = "a", .points = {{1, 5}, {2, kNan}}}}});
  EXPECT_THAT(one, testing::AllOf(HasSubstr("<circle class=\"c0 d0\" r=\"3\""), Not(HasSubstr("<path"))));
  std::vector<Point> broken = wave(10'000);
  for (std::size_t i = 4'000; i < 5'000; ++i) broken[i].y = kNan;
  EXPECT_TRUE(std::ranges::any_of(thinned(broken, 400), [](const Point& point) { return std::isnan(point.y); }));
  EXPECT_LE(thinned(broken, 400).size(), 400U);
}

TEST(Curve, TwelveSeriesHaveTwelveColours) {
  Curve curve{.title = "t", .series = {}};
  for (std::size_t i = 0; i <= kColours; ++i)
    curve.series.push_back({.name = "s" + std::to_string(i), .points = {{1, 1.0 + static_cast<double>(i)}, {2, 2}}});
  const std::string html = to_html(curve), style(detail::kStyle), script(detail::kScript);
  EXPECT_EQ(kColours, 12U);
  std::set<std::string> different;
  for (std::size_t i = 0; i < kColours; ++i) {
    const std::string number = std::to_string(i);
    EXPECT_THAT(html, HasSubstr("<path class=\"c" + number + " d0\""));
    EXPECT_THAT(style, HasSubstr(".c" + number + "{--s:var(--s" + number + ")}"));
    const std::string colour = style.substr(style.find("--s" + number + ":#") + number.size() + 4, 7);
    EXPECT_THAT(script, HasSubstr("'" + colour + "'")) << "for a diagram that is saved as a file";
    different.insert(colour);
  }
  EXPECT_EQ(different.size(), kColours);
  EXPECT_THAT(html, HasSubstr("<path class=\"c0 d1\"")) << "the next series has a colour again, but broken";
}

TEST(Curve, RunsHaveAColourEachAndTheirSeriesDashes) {
  const std::vector<Point> two = {{1, 1}, {2, 2}};
  const std::string html = to_html({"t", {{"a train", two, 0, 0}, {"a validation", two, 0, 1}, {"b train", two, 1, 0}}});
  for (const char* look : {"<path class=\"c0 d0\"", "<path class=\"c0 d1\"", "<path class=\"c1 d0\""})
    EXPECT_THAT(html, HasSubstr(look));
}

TEST(Curve, ValidationsAreMarkedAndTheBestHasARing) {
  Curve curve{.title = "t",
              .series = {{.name = "a", .points = {{1, 1}, {2, 3}, {3, 2}}, .has_marks = true, .best = Point{2, 3}}}};
  curve.best_step = 3;
  const std::string html = to_html(curve);
  EXPECT_THAT(html, testing::AllOf(HasSubstr("<circle class=\"c0 d0 ring\""), HasSubstr("<line class=\"best\"")));
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<circle class=\"c0 d0\""), 3U);
  EXPECT_THAT(html, HasSubstr("&quot;best&quot;:[2,3]")) << "for the script: " << html.substr(0, 300);
  curve.steps = std::pair(0.0, 2.5);
  EXPECT_THAT(to_html(curve), Not(HasSubstr("<line class=\"best\""))) << "outside the axis";
}

TEST(Curve, AverageOfSectionsKeepsTheMean) {
  std::vector<Point> points = wave(1000);
  points[7].y = kNan;
  const std::vector<Point> few = averaged(points, 10);
  ASSERT_EQ(few.size(), 10U);
  EXPECT_NEAR(few[9].x, 949.5, 0.6);
  EXPECT_NEAR(few[9].y, 0, 0.02);
  EXPECT_EQ(averaged(wave(5), 10).size(), 5U);
}

TEST(Curve, EscapesWhatFilesSay) {
  const std::string html = to_html({"</figure><script>", {{"\"'><script>", {{1, 1}, {2, 2}}}, {"\xff", {{1, 1}, {2, 2}}}}});
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
}

}  // namespace
}  // namespace millrace::report
