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

TEST(Curve, EscapesWhatFilesSay) {
  const std::string html = to_html({"</figure><script>", {{"\"'><script>", {{1, 1}, {2, 2}}}, {"\xff", {{1, 1}, {2, 2}}}}});
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
}

}  // namespace
}  // namespace millrace::report
