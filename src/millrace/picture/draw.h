// Draws pictures with axes, units and legends from plain numbers: curves, maps, a matrix, histograms, a grid of images.
//
//   std::vector<Picture> MyRecipe::draw() {
//     return {picture::curves({.name = "spectrum", .title = "Power, sample 12 of signal/a.h5",
//                              .x = {.label = "delay", .unit = "ns"}, .y = {.label = "power", .unit = "K²", .logarithmic = true},
//                              .series = {{.name = "truth", .x = delay, .y = power}}})};
//   }
//
// Every picture is 900 pixels wide and as high as it needs, at most kGreatestHeight; letters are 18 to 24 pixels high, so that
// they are still readable when the picture is shown 400 pixels wide. `title` is at the top, `caption` at the bottom; put the
// sample's name into one of them. Text is UTF-8; invalid bytes are shown as U+FFFD, and text that does not fit ends in "…".
// DejaVu Sans, which is part of the program, has Latin, Greek, Cyrillic and signs; other scripts show as boxes.
//
// Values that are not finite are never drawn as numbers: they are grey in maps and images, a gap in curves, omitted from
// histograms; a line under the picture counts them. Equal input gives equal bytes on one machine, whatever the locale. Any
// thread may draw. Throws a RecipeError that names the picture if there is nothing to draw, sizes do not fit or limits are not a
// range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "millrace/picture/colour.h"
#include "millrace/picture/picture.h"

namespace millrace::picture {

inline constexpr std::int64_t kWidth = 900;
inline constexpr std::int64_t kGreatestHeight = 6000;

struct Range {
  double low = 0, high = 1;  // finite, low < high
};

struct Axis {
  std::string label = "";  // "frequency"
  std::string unit = "";   // "MHz"; empty if the number has no unit
  bool logarithmic = false;
  std::optional<Range> limits = std::nullopt;  // nullopt: the range of the values is used
};

struct Series {
  std::string name;            // shown in the legend
  std::vector<double> x = {};  // empty: 0, 1, 2, … are used
  std::vector<double> y = {};  // as many values as x
  bool points = false;         // a mark for each value instead of a line through them
};

// Lines over a common x. A logarithmic axis leaves out values that are not above zero, and the caption counts them.
struct Curves {
  std::string name;  // name of the picture's file
  std::string title = "";
  std::string caption = "";
  Axis x = {}, y = {};
  std::vector<Series> series = {};
};
[[nodiscard]] Picture curves(const Curves& what);

// Coordinates of the centres of an array's first and last row or column. If `last` is below `first`, the axis runs backwards.
struct Extent {
  double first = 0, last = 0;
};

struct Map {
  struct Axes {
    Axis x = {}, y = {};                                                     // never logarithmic; `limits` are ignored
    std::optional<Extent> x_extent = std::nullopt, y_extent = std::nullopt;  // nullopt: the axis shows column or row indices
  };

  std::string title = "";
  std::int64_t height = 0, width = 0;
  std::vector<float> values = {};  // height * width, rows from the top
  // nullopt: the axes of Maps are used; in a picture either all maps have their own axes or no map has.
  std::optional<Axes> axes = std::nullopt;
};

// Arrays side by side, at most three in a row of the picture. Small arrays are enlarged by whole factors, so that each cell is a
// rectangle of one colour. Large arrays are shrunk by whole factors; a pixel shows the mean of the finite values under it.
struct Maps {
  std::string name;  // name of the picture's file
  std::string title = "";
  std::string caption = "";
  Axis x = {}, y = {};  // axes of every map, as in Map::Axes
  std::optional<Extent> x_extent = std::nullopt, y_extent = std::nullopt;
  Axis value = {};                            // the quantity that the colours show; `limits` bound the scale; never logarithmic
  ColourMap colours = ColourMap::sequential;  // a diverging scale without limits is symmetric about zero
  bool shared_scale = true;                   // false: each map has its own scale and colour bar
  std::vector<Map> maps = {};
};
[[nodiscard]] Picture maps(const Maps& what);

// How often each class (column) was predicted for each true class (row). The colour is the share of the row, the number is the
// count. Rows without a sample are grey. At most 400 classes. If cells are too small, numbers and names are left out.
struct Matrix {
  std::string name;  // name of the picture's file
  std::string title = "";
  std::string caption = "";
  std::vector<std::string> classes = {};
  std::vector<std::int64_t> counts = {};  // classes * classes, not negative
  std::string row_label = "true class", column_label = "predicted class";
};
[[nodiscard]] Picture matrix(const Matrix& what);

// Counts of the values in bins of equal width, which all series share.
struct Histograms {
  struct Sampled {
    std::string name;  // shown in the legend
    std::vector<float> values = {};
  };

  std::string name;  // name of the picture's file
  std::string title = "";
  std::string caption = "";
  Axis x = {};  // never logarithmic; values outside `limits` are left out and counted
  bool log_counts = false;
  std::int64_t bins = 0;  // 1 to 400; 0: Rice's rule, twice the cube root of the largest series' size, limited to 4 to 100
  std::vector<Sampled> series = {};
};
[[nodiscard]] Picture histograms(const Histograms& what);

struct Image {
  // The size of a pixel of the array. The image is drawn in these proportions, as far as whole factors allow.
  struct PixelSize {
    double height = 1, width = 1;  // finite, above 0
    std::string unit = "";         // "mm"; empty for a number without a unit
  };

  std::string caption = "";
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 3;  // 1: grey, 3: RGB; a pixel's channels are adjacent: height * width * channels values
  std::variant<std::vector<std::uint8_t>, std::vector<float>> pixels = {};
  Range range = {};                                 // for floats: `low` is drawn black, `high` white
  std::optional<ColourMap> colours = std::nullopt;  // for floats of one channel: these colours instead of black to white
  std::optional<PixelSize> size = std::nullopt;     // if set, a scale bar of a round length is drawn under the image
};

// Images in a grid. At most 60 are shown, and the caption gives their total. Like maps, images are enlarged and shrunk by whole
// factors. An image that is much longer than wide, or much wider than long, is stretched so that it can be seen.
struct Images {
  std::string name;  // name of the picture's file
  std::string title = "";
  std::string caption = "";
  std::int64_t columns = 0;  // images side by side, at most 8; 0: chosen from their number
  std::vector<Image> images = {};
};
[[nodiscard]] Picture images(const Images& what);

}  // namespace millrace::picture
