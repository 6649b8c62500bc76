#include "millrace/report/curve.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

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

TEST(Curve, IsLogarithmicWherePositiveAndWide) {
  EXPECT_TRUE(is_logarithmic({"t", {{"a", {{1, 1}, {2, 100}}}}}));
  EXPECT_FALSE(is_logarithmic({"t", {{"a", {{1, 1}, {2, 20}}}}}));
  EXPECT_FALSE(is_logarithmic({"t", {{"a", {{1, 0}, {2, 100}}}}}));
  EXPECT_FALSE(is_logarithmic({"t", {}}));
}

TEST(Curve, HasNoCoordinateThatIsNoNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<Point>& points : {std::vector<Point>{{1, -1e308}, {2, 1e308}},
                                           {{-1e308, 1}, {1e308, 2}},
                                           {{1, 5e-324}, {2, 1e308}},
                                           {{1, kNan}, {2, 3}, {3, inf}, {4, 4}},
                                           {{1, 0}, {1, 0}},
                                           {{1, 7}}}) {
    std::string html = to_html({"t", {{"a", points}}});
    html.erase(0, html.find("<svg"));
    EXPECT_THAT(html, testing::AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
  EXPECT_EQ(to_html({"t", {{"a", {{1, kNan}}}}}), "");
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
  EXPECT_THAT(to_html({"t", {{"a", noise}}}), testing::AllOf(HasSubstr("c0 d0 raw"), HasSubstr("c0 d0 mean")));
  EXPECT_THAT(to_html({"t", {{"a", smooth}}}), Not(HasSubstr("mean")));
}

TEST(Curve, RunsHaveAColourEachAndTheirSeriesDashes) {
  const std::vector<Point> two = {{1, 1}, {2, 2}};
  const std::string html = to_html({"t", {{"a train", two, 0, 0}, {"a validation", two, 0, 1}, {"b train", two, 1, 0}}});
  for (const char* look : {"class=\"c0 d0\" data-i=\"0\"", "class=\"c0 d1\" data-i=\"1\"", "class=\"c1 d0\" data-i=\"2\""})
    EXPECT_THAT(html, HasSubstr(look));
}

TEST(Curve, EscapesWhatFilesSay) {
  const std::string html = to_html({"</figure><script>", {{"\"'><script>", {{1, 1}, {2, 2}}}, {"\xff", {{1, 1}, {2, 2}}}}});
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
}

}  // namespace
}  // namespace millrace::report
