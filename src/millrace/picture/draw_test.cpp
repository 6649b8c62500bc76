#include "millrace/picture/draw.h"

#include <gmock/gmock.h>

#include <clocale>
#include <cmath>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/picture/detail/layout.h"
#include "tests/support/refusal.h"

namespace millrace::picture {
namespace {

using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Colour at(const Picture& picture, double x, double y) {
  const auto place = static_cast<std::size_t>((static_cast<std::int64_t>(y) * picture.width + static_cast<std::int64_t>(x)) * 3);
  return {picture.rgb.at(place), picture.rgb.at(place + 1), picture.rgb.at(place + 2)};
}

// The number of pixels in a box that are not white.
std::int64_t inked(const Picture& picture, double left, double top, double width, double height) {
  std::int64_t count = 0;
  for (double y = top; y < top + height; ++y) {
    for (double x = left; x < left + width; ++x) count += at(picture, x, y) != Colour{255, 255, 255} ? 1 : 0;
  }
  return count;
}

std::int64_t pixels_of(const Picture& picture, Colour colour) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) {
    count += picture.rgb[i] == colour[0] && picture.rgb[i + 1] == colour[1] && picture.rgb[i + 2] == colour[2] ? 1 : 0;
  }
  return count;
}

void expect_sound(const Picture& picture, const std::string& name) {
  EXPECT_EQ(picture.name, name);
  EXPECT_EQ(picture.width, kWidth);
  EXPECT_GT(picture.height, 100);
  EXPECT_LE(picture.height, kGreatestHeight);
  EXPECT_EQ(picture.rgb.size(), static_cast<std::size_t>(picture.width * picture.height * 3));
}

template <class Draw>
std::string refusal_to_draw(const Draw& draw) {
  return refusal_reason<RecipeError>(draw);
}

Maps one_map(std::int64_t height, std::int64_t width, std::vector<float> values) {
  return {.name = "m",
          .title = "Title",
          .x = {.label = "frequency", .unit = "MHz"},
          .y = {.label = "RA", .unit = "h"},
          .value = {.label = "signal", .unit = "mK"},
          .maps = {{.title = "truth", .height = height, .width = width, .values = std::move(values)}}};
}

Curves one_curve(std::vector<double> y) {
  return {.name = "c", .title = "Title", .x = {.label = "x"}, .y = {.label = "y"}, .series = {{.name = "a", .y = std::move(y)}}};
}

TEST(Colours, AreEvenInLightnessAndGreyIsNone) {
  double before = -1;
  for (int i = 0; i <= 255; ++i) {
    const Colour c = colour_of(ColourMap::sequential, i / 255.0);
    const auto linear = [](std::uint8_t byte) {
      const double v = byte / 255.0;
      return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
    };
    const double y = 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
    const double lightness = y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
    EXPECT_NEAR(lightness, 14 + 80 * i / 255.0, 0.6) << i;
    EXPECT_GT(lightness, before - 0.3) << i;
    before = lightness;
    for (const ColourMap map : {ColourMap::sequential, ColourMap::diverging}) EXPECT_NE(colour_of(map, i / 255.0), kNoNumber);
  }
  EXPECT_EQ(colour_of(ColourMap::diverging, std::nan("")), kNoNumber);
  EXPECT_EQ(colour_of(ColourMap::sequential, -kInfinity), colour_of(ColourMap::sequential, 0));
  EXPECT_NE(line_colour(0), line_colour(7));
}

TEST(MapsPicture, EachCellHasTheColourOfItsValueAndNaNIsGrey) {
  Maps what = one_map(2, 3, {0, 1, 2, 3, kNan, 10});
  const Picture picture = maps(what);
  expect_sound(picture, "m");
  const detail::MapsLayout layout = detail::layout_of(what);
  const detail::Panel& panel = layout.panels.at(0);
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 3; ++column) {
      const double x = panel.cells.left + (column + 0.5) * static_cast<double>(panel.fits.columns.zoom);
      const double y = panel.cells.top + (row + 0.5) * static_cast<double>(panel.fits.rows.zoom);
      const float value = what.maps[0].values[static_cast<std::size_t>(row) * 3 + static_cast<std::size_t>(column)];
      EXPECT_EQ(at(picture, x, y), colour_of(ColourMap::sequential, value / 10.0)) << row << " " << column;
    }
  }
  EXPECT_EQ(layout.lost, 1);
  // Title, label of the y axis, ticks below, caption.
  EXPECT_GT(inked(picture, 18, 18, 100, 30), 50);
  EXPECT_GT(inked(picture, 18, panel.cells.top, 60, panel.cells.height), 50);
  EXPECT_GT(inked(picture, panel.cells.left, panel.cells.bottom() + 10, panel.cells.width, 50), 100);
  EXPECT_GT(inked(picture, 18, static_cast<double>(picture.height) - 42, 400, 30), 200);
  what.maps[0].values[4] = 5;
  EXPECT_LT(maps(what).height, picture.height) << "nothing to say, no caption";
}

TEST(MapsPicture, AnyShapeCanBeSeenAndIsBounded) {
  const auto cells = [](std::int64_t height, std::int64_t width) {
    const Maps what = one_map(height, width, std::vector<float>(static_cast<std::size_t>(height * width), 1));
    expect_sound(maps(what), "m");
    return detail::layout_of(what).panels.at(0).cells;
  };
  EXPECT_GE(cells(8, 1024).height, 8 * 16);
  EXPECT_GE(cells(1, 1).height, 150);
  for (const auto& [height, width] : {std::pair{1, 100000}, std::pair{100000, 1}, std::pair{1, 2}, std::pair{700, 701}}) {
    const detail::Box box = cells(height, width);
    EXPECT_GE(std::min(box.width, box.height), 100) << height << " x " << width;
    EXPECT_LE(std::max(box.width, box.height), kWidth) << height << " x " << width;
  }
}

TEST(MapsPicture, AShrunkMapShowsTheMeanOfWhatIsFinite) {
  std::vector<float> values(1400, 0);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = 4;
  values[100] = kNan;
  values[101] = 2;
  Maps what = one_map(1, 1400, values);
  what.value.limits = Range{0, 4};
  const detail::Panel panel = detail::layout_of(what).panels.at(0);
  ASSERT_GT(panel.fits.columns.shrink, 1);
  EXPECT_EQ(detail::mean_under(values, {panel.fits.rows, {.cells = 1400, .zoom = 1, .shrink = 2}}, 0, 0), 2);
  EXPECT_EQ(detail::mean_under(values, {panel.fits.rows, {.cells = 1400, .zoom = 1, .shrink = 2}}, 0, 50), 2);
  EXPECT_EQ(at(maps(what), panel.cells.left + 5, panel.cells.top + 5), colour_of(ColourMap::sequential, 0.5)) << "4 and 0";
}

TEST(MapsPicture, ScalesAreSharedOrTheirOwnAndDivergingOnesHaveZeroInTheMiddle) {
  Maps what = one_map(1, 2, {0, 1});
  what.maps.push_back({"b", 1, 2, {-4, 2}});
  EXPECT_EQ(detail::layout_of(what).ranges.at(0).low, -4);
  EXPECT_EQ(detail::layout_of(what).ranges.at(1).high, 2);
  what.shared_scale = false;
  EXPECT_EQ(detail::layout_of(what).ranges.at(0).low, 0);
  what.colours = ColourMap::diverging;
  EXPECT_EQ(detail::layout_of(what).ranges.at(1).high, 4);
  expect_sound(maps(what), "m");
  what.value.limits = Range{-1, 1};
  EXPECT_EQ(detail::layout_of(what).outside, 2);
  Maps none = one_map(1, 2, {kNan, kNan});
  expect_sound(maps(none), "m");
  expect_sound(maps(one_map(2, 2, {-3, -3, -3, -3})), "m");
}

TEST(MapsPicture, AMapMayHaveAxesOfItsOwn) {
  Maps what = one_map(2, 3, {1, 2, 3, 4, 5, 6});
  what.maps.push_back(what.maps[0]);
  const std::vector<std::uint8_t> shared = maps(what).rgb;
  for (Map& map : what.maps)
    map.axes = Map::Axes{.x = {.label = "z", .unit = "mm"}, .y = {.label = "y"}, .x_extent = Extent{9, 5}};
  expect_sound(maps(what), "m");
  EXPECT_NE(maps(what).rgb, shared);
  what.maps[1].axes->x_extent = Extent{0, kInfinity};
  EXPECT_THAT(refusal_to_draw([&] { (void)maps(what); }), HasSubstr("x extent that is not finite"));
}

TEST(MapsPicture, RefusesWhatItCannotDraw) {
  EXPECT_THAT(refusal_to_draw([] { (void)maps(one_map(0, 4, {})); }),
              HasSubstr("picture \"m\" has 0 x 4 values in map \"truth\""));
  EXPECT_THAT(refusal_to_draw([] { (void)maps(one_map(2, 2, {1, 2, 3})); }), HasSubstr("has 3 values in map \"truth\" of 2 x 2"));
  EXPECT_THAT(refusal_to_draw([] { (void)maps({.name = "none"}); }), HasSubstr("picture \"none\" has no maps"));
  Maps what = one_map(1, 1, {1});
  what.value.limits = Range{0, std::nan("")};
  EXPECT_THAT(refusal_to_draw([&] { (void)maps(what); }), HasSubstr("has the limits 0 to nan for colour scale"));
  what.value.limits.reset();
  what.x_extent = picture::Extent{0, kInfinity};
  EXPECT_THAT(refusal_to_draw([&] { (void)maps(what); }), HasSubstr("x extent that is not finite"));
  what.x_extent.reset();
  what.y.logarithmic = true;
  EXPECT_THAT(refusal_to_draw([&] { (void)maps(what); }), HasSubstr("logarithmic y axis"));
  what.y.logarithmic = false;
  what.maps.assign(200, what.maps[0]);
  EXPECT_THAT(refusal_to_draw([&] { (void)maps(what); }), HasSubstr("pixels of height"));
}

TEST(CurvesPicture, LinesHaveTheirColoursAndGapsAreCounted) {
  Curves what = one_curve({1, 2, 3, 4});
  what.series.push_back({.name = "b", .y = {4, 3, 2, 1}});
  const Picture whole = curves(what);
  expect_sound(whole, "c");
  EXPECT_GT(pixels_of(whole, line_colour(0)), 500);
  EXPECT_GT(pixels_of(whole, line_colour(1)), 500);
  EXPECT_EQ(pixels_of(whole, line_colour(2)), 0);
  what.series[1].y = {4, std::nan(""), std::nan(""), kInfinity};
  const Picture broken = curves(what);
  EXPECT_GT(broken.height, whole.height) << "the caption counts them";
  EXPECT_LT(pixels_of(broken, line_colour(1)), pixels_of(whole, line_colour(1)));
}

TEST(CurvesPicture, PointsAreMarksWithoutALine) {
  Curves what = one_curve({1, 5, 2, 4});
  const int line = static_cast<int>(pixels_of(curves(what), line_colour(0)));
  what.series[0].points = true;
  const int marks = static_cast<int>(pixels_of(curves(what), line_colour(0)));
  EXPECT_GT(marks, 40);
  EXPECT_LT(marks, line / 2);
}

TEST(CurvesPicture, OddNumbersAreDrawn) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const std::vector<std::vector<double>> odd{{1},           {2, 2, 2},        {std::nan("")},    {-kLargest, kLargest},
                                             {0, 0},        {1e-310, 2e-310}, {1e9, 1e9 + 1e-7}, {-1, 0, -3},
                                             {1e-30, 1e30}, {kInfinity, 1}};
  for (const bool logarithmic : {false, true}) {
    for (const auto& values : odd) {
      Curves what = one_curve(values);
      what.y.logarithmic = logarithmic;
      expect_sound(curves(what), "c");
      what.series[0].x = values;
      what.x.logarithmic = logarithmic;
      expect_sound(curves(what), "c");
    }
  }
  std::vector<double> many(300000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i % 2 == 0 ? 1 : -1;
  EXPECT_GT(pixels_of(curves(one_curve(many)), line_colour(0)), 200000) << "what swings in every pixel fills the box";
}

TEST(CurvesPicture, RefusesWhatItCannotDraw) {
  EXPECT_THAT(refusal_to_draw([] { (void)curves({.name = "c"}); }), HasSubstr("picture \"c\" has no curves"));
  EXPECT_THAT(refusal_to_draw([] { (void)curves(one_curve({})); }), HasSubstr("has no values in series \"a\""));
  Curves what = one_curve({1, 2});
  what.series[0].x = {1};
  EXPECT_THAT(refusal_to_draw([&] { (void)curves(what); }), HasSubstr("has 1 x and 2 y values in series \"a\""));
  what = one_curve({1, 2});
  what.y.limits = Range{2, 1};
  EXPECT_THAT(refusal_to_draw([&] { (void)curves(what); }), HasSubstr("has the limits 2 to 1 for y axis"));
  what.y = {.label = "y", .logarithmic = true, .limits = Range{0, 1}};
  EXPECT_THAT(refusal_to_draw([&] { (void)curves(what); }), HasSubstr("lower limit 0 for the logarithmic y axis"));
}

TEST(MatrixPicture, ColoursAreSharesOfTheRow) {
  Matrix what{.name = "x", .title = "Title", .classes = {"cat", "dog", "no sample"}, .counts = {3, 1, 0, 0, 8, 0, 0, 0, 0}};
  const Picture picture = matrix(what);
  expect_sound(picture, "x");
  const detail::MatrixLayout layout = detail::layout_of(what);
  const auto corner = [&](int row, int column) {  // numbers are in the middle, so a corner shows the colour
    return at(picture, layout.cells.left + column * layout.side + 3, layout.cells.top + row * layout.side + 3);
  };
  EXPECT_EQ(corner(0, 0), colour_of(ColourMap::sequential, 0.75));
  EXPECT_EQ(corner(0, 1), colour_of(ColourMap::sequential, 0.25));
  EXPECT_EQ(corner(1, 1), colour_of(ColourMap::sequential, 1));
  EXPECT_EQ(corner(2, 2), kNoNumber);
  what.classes.assign(400, "a name that is far too long for a cell of two pixels");
  what.counts.assign(160000, 1);
  expect_sound(matrix(what), "x");
  what.counts.pop_back();
  EXPECT_THAT(refusal_to_draw([&] { (void)matrix(what); }), HasSubstr("has 159999 counts, but 400 classes need 160000"));
  EXPECT_THAT(refusal_to_draw([] { (void)matrix({.name = "x", .classes = {"a"}, .counts = {-1}}); }),
              HasSubstr("has the count -1"));
  EXPECT_THAT(refusal_to_draw([] { (void)matrix({.name = "x"}); }), HasSubstr("has no classes"));
}

TEST(HistogramsPicture, CountsWhatIsFiniteAndDrawsAnything) {
  Histograms what{.name = "h", .title = "Title", .x = {.label = "error", .unit = "K"}, .series = {{"a", {1, 2, 2, 3, 3, 3, 4}}}};
  const Picture whole = histograms(what);
  expect_sound(whole, "h");
  EXPECT_GT(pixels_of(whole, line_colour(0)), 300);
  what.series[0].values.push_back(kNan);
  EXPECT_GT(histograms(what).height, whole.height);
  for (const std::vector<float>& values : {std::vector<float>{5}, {kNan}, {0, 0}, {-3e38F, 3e38F}}) {
    for (const bool log_counts : {false, true}) {
      expect_sound(histograms({.name = "h", .log_counts = log_counts, .series = {{"", values}}}), "h");
    }
  }
  what.bins = 401;
  EXPECT_THAT(refusal_to_draw([&] { (void)histograms(what); }), HasSubstr("has 401 bins"));
  EXPECT_THAT(refusal_to_draw([] { (void)histograms({.name = "h", .series = {{"e", {}}}}); }), HasSubstr("in series \"e\""));
}

TEST(ImagesPicture, PixelsAreEnlargedByWholeFactors) {
  Images what{.name = "i", .title = "Title"};
  what.images.push_back({.caption = "two", .height = 1, .width = 2, .pixels = std::vector<std::uint8_t>{255, 0, 0, 0, 9, 255}});
  what.images.push_back(
      {.caption = "grey", .height = 2, .width = 2, .channels = 1, .pixels = std::vector<float>{0, 2, kNan, 1}, .range = {0, 2}});
  const Picture picture = images(what);
  expect_sound(picture, "i");
  const detail::ImagesLayout layout = detail::layout_of(what);
  const auto cell = [&](std::size_t image, double row, double column) {
    const detail::Box& box = layout.cells[image];
    const auto& fits = layout.fits[image];
    return at(picture, box.left + (column + 0.5) * static_cast<double>(fits.columns.zoom),
              box.top + (row + 0.5) * static_cast<double>(fits.rows.zoom));
  };
  EXPECT_EQ(cell(0, 0, 0), (Colour{255, 0, 0}));
  EXPECT_EQ(cell(0, 0, 1), (Colour{0, 9, 255}));
  EXPECT_EQ(cell(1, 0, 1), (Colour{255, 255, 255}));
  EXPECT_EQ(cell(1, 1, 0), kNoNumber);
  EXPECT_EQ(cell(1, 1, 1), (Colour{128, 128, 128}));
  what.images.assign(
      300, {.caption = std::string(3000, 'w'), .height = 1, .width = 9000, .channels = 1, .pixels = std::vector<float>(9000)});
  expect_sound(images(what), "i");
  EXPECT_EQ(detail::layout_of(what).cells.size(), 60U);
  EXPECT_GE(detail::layout_of(what).cells[0].height, 24);
}

TEST(ImagesPicture, ASizeGivesProportionsAndAScaleBar) {
  const std::vector<float> values(40 * 64, 0.25F);
  Images what{.name = "i", .columns = 3};
  for (int i = 0; i < 4; ++i) what.images.push_back({.height = 40, .width = 64, .channels = 1, .pixels = values});
  what.images[1].size = Image::PixelSize{.height = 5, .width = 2.5, .unit = "mm"};
  what.images[2].size = Image::PixelSize{.height = 1, .width = 4};
  const detail::ImagesLayout layout = detail::layout_of(what);
  EXPECT_GT(layout.cells[3].top, layout.cells[2].bottom());
  EXPECT_EQ(layout.cells[0].top, layout.cells[2].top);
  EXPECT_EQ(layout.fits[0].columns.zoom, 4);
  EXPECT_EQ(layout.fits[0].rows.zoom, 4);
  EXPECT_EQ(layout.fits[1].rows.zoom, 8);
  EXPECT_EQ(layout.fits[2].rows.zoom, 1);
  EXPECT_EQ(layout.bars[0].text, "");
  EXPECT_EQ(layout.bars[1].text, "50 mm");  // 64 pixels are 160 mm
  EXPECT_DOUBLE_EQ(layout.bars[1].length, 50 / 2.5 * 4);
  EXPECT_EQ(layout.bars[2].text, "50");
  const Picture picture = images(what);
  EXPECT_EQ(at(picture, layout.cells[1].left + 40, layout.cells[1].bottom() + 13), detail::kInk);
  EXPECT_EQ(at(picture, layout.cells[1].left + 90, layout.cells[1].bottom() + 13), (Colour{255, 255, 255}));
  what.images[0].colours = ColourMap::diverging;
  EXPECT_EQ(at(images(what), layout.cells[0].left + 5, layout.cells[0].top + 5), colour_of(ColourMap::diverging, 0.25));
  // A long image keeps a bounded height, and a huge image is shrunk in both directions.
  what.images[0] = {.height = 4000, .width = 4000, .channels = 1, .pixels = std::vector<float>(16000000)};
  what.images[0].size = Image::PixelSize{.height = 100, .width = 1e-3, .unit = "mm"};
  expect_sound(images(what), "i");
}

TEST(ImagesPicture, RefusesWhatItCannotDraw) {
  EXPECT_THAT(refusal_to_draw([] { (void)images({.name = "i"}); }), HasSubstr("picture \"i\" has no images"));
  Images what{.name = "i", .images = {{.caption = "a", .height = 2, .width = 2, .channels = 2, .pixels = std::vector<float>(8)}}};
  EXPECT_THAT(refusal_to_draw([&] { (void)images(what); }), HasSubstr("has 2 channels in image 0 (\"a\")"));
  Images odd{.name = "i", .images = {{.height = 1, .width = 1, .pixels = std::vector<float>(3)}}};
  odd.images[0].colours = ColourMap::diverging;
  EXPECT_THAT(refusal_to_draw([&] { (void)images(odd); }), HasSubstr("not one channel of floats"));
  odd.images[0].colours.reset();
  odd.images[0].size = Image::PixelSize{.height = 0};
  EXPECT_THAT(refusal_to_draw([&] { (void)images(odd); }), HasSubstr("has an invalid pixel size"));
  odd.images[0].size.reset();
  odd.columns = 9;
  EXPECT_THAT(refusal_to_draw([&] { (void)images(odd); }), HasSubstr("has 9 columns"));
  what.images[0].channels = 3;
  EXPECT_THAT(refusal_to_draw([&] { (void)images(what); }), HasSubstr("has 8 values in image 0 (\"a\") of 2 x 2 x 3"));
  what.images[0].height = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal_to_draw([&] { (void)images(what); }), HasSubstr("has 8 values"));
  what.images[0] = {.caption = "b", .height = 1, .width = 1, .channels = 1, .pixels = std::vector<float>(1), .range = {1, 1}};
  EXPECT_THAT(refusal_to_draw([&] { (void)images(what); }), HasSubstr("limits 1 to 1 for image 0"));
}

TEST(PictureText, AnyBytesAreDrawnInRoomThatIsBounded) {
  Curves what = one_curve({1, 2, 3});
  what.title = std::string("bad \xFF\xC0 bytes\nand \0 lines", 24);
  expect_sound(curves(what), "c");
  what.title = std::string(100000, 'W');
  what.caption = std::string(100000, 'i') + " " + std::string(100000, ' ');
  what.series[0].name = what.title;
  what.x.label = what.y.label = what.title;
  const Picture picture = curves(what);
  expect_sound(picture, "c");
  EXPECT_LT(picture.height, 900);
  EXPECT_EQ(detail::fitted("αβγ", 20, 400), "αβγ");
  EXPECT_EQ(detail::fitted("aaaaaaaaaaaaaaaaaaaaaaaa", 20, 60).substr(0, 2), "aa");
  EXPECT_THAT(detail::fitted(std::string(50, 'a'), 20, 60), testing::EndsWith("…"));
  EXPECT_EQ(detail::wrapped("one two three", 20, detail::text_width("one two", 20) + 1, 5),
            (std::vector<std::string>{"one two", "three"}));
}

TEST(PictureBytes, AreTheSameAgainAndInAnyLocale) {
  Curves what = one_curve({0.25, 1234.5, -7.5});
  const Picture first = curves(what);
  EXPECT_EQ(curves(what).rgb, first.rgb);
  const std::string before = std::setlocale(LC_ALL, nullptr);
  bool found = false;
  for (const char* locale : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) found = found || std::setlocale(LC_ALL, locale) != nullptr;
  EXPECT_EQ(curves(what).rgb, first.rgb);
  std::setlocale(LC_ALL, before.c_str());
  if (!found) GTEST_SKIP() << "no other locale on this machine";
}

TEST(PictureTicks, AreRoundNumbersWithACommonPower) {
  const auto labels = [](const detail::Ticks& ticks) {
    std::vector<std::string> texts;
    for (const detail::Tick& tick : ticks.marks) {
      if (!tick.label.empty()) texts.push_back(tick.label);
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(labels(detail::linear_ticks({500, 600}, 5)), (Texts{"500", "520", "540", "560", "580", "600"}));
  EXPECT_EQ(labels(detail::linear_ticks({-0.3, 0.3}, 4)), (Texts{"−0.2", "0.0", "0.2"}));
  EXPECT_EQ(labels(detail::linear_ticks({0, 3}, 8, true)), (Texts{"0", "1", "2", "3"}));
  const detail::Ticks small = detail::linear_ticks({0, 4e-7}, 4);
  EXPECT_EQ(small.exponent, -7);
  EXPECT_EQ(labels(small), (Texts{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(detail::axis_text({.label = "signal", .unit = "K"}, -7), "signal (10⁻⁷ K)");
  EXPECT_EQ(detail::axis_text({.label = "share"}, 0), "share");
  EXPECT_EQ(labels(detail::log_ticks({1e-3, 1e2}, 8)), (Texts{"10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹", "10²"}));
  EXPECT_EQ(labels(detail::log_ticks({1, 8}, 8)), (Texts{"1", "2", "5"}));
}

}  // namespace
}  // namespace millrace::picture
