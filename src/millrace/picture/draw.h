// Pictures with axes, units and legends out of plain numbers: curves, maps, a matrix, histograms, a grid of images.
//
//   std::vector<Picture> MyRecipe::draw() {
//     return {picture::curves({.name = "spectrum", .title = "Power, sample 12 of signal/a.h5",
//                              .x = {.label = "delay", .unit = "ns"}, .y = {.label = "power", .unit = "K²", .logarithmic = true},
//                              .series = {{.name = "truth", .x = delay, .y = power}}})};
//   }
//
// Every picture is 900 pixels wide and as high as it needs, at most kGreatestHeight; letters are 18 to 24 pixels high, so that
// they can still be read where the picture is shown 400 pixels wide. `title` stands above, `caption` below; put the sample's name
// into one of them. Text is UTF-8; bytes that are not are shown as U+FFFD, and what does not fit ends in "…". DejaVu Sans, which
// is part of the program, has Latin, Greek, Cyrillic and signs; scripts it lacks show as boxes.
//
// Values that are not finite are never drawn as numbers: grey in maps and images, a gap in curves, left out of histograms; a line
// under the picture counts them. Equal input gives equal bytes on one machine, whatever the locale. Any thread.
// RecipeError, which names the picture: nothing to draw, sizes that do not fit, limits that are no range.
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
  std::string unit = "";   // "MHz"; empty: a number without a unit
  bool logarithmic = false;
  std::optional<Range> limits = std::nullopt;  // none: what the values span
};

struct Series {
  std::string name;            // in the legend
  std::vector<double> x = {};  // empty: 0, 1, 2, …
  std::vector<double> y = {};  // as many as x
  bool points = false;         // a mark for each value instead of a line through them
};

// Lines over a common x. A logarithmic axis leaves out what is not above zero, and says how many values that were.
struct Curves {
  std::string name;  // of the file
  std::string title = "";
  std::string caption = "";
  Axis x = {}, y = {};
  std::vector<Series> series = {};
};
[[nodiscard]] Picture curves(const Curves& what);

// Coordinates of the centres of an array's first and last row or column; `last` may be below `first`, then the axis runs
// backwards.
struct Extent {
  double first = 0, last = 0;
};

struct MapAxes {
  Axis x = {}, y = {};                                                     // never logarithmic, `limits` have no meaning here
  std::optional<Extent> x_extent = std::nullopt, y_extent = std::nullopt;  // none: the index of column and row
};

struct Map {
  std::string title = "";
  std::int64_t height = 0, width = 0;
  std::vector<float> values = {};              // height * width, rows from the top
  std::optional<MapAxes> axes = std::nullopt;  // of this map; none: those of all. All maps of a picture have them, or none has
};

// Arrays beside each other, at most three in a row of the picture. Small arrays are enlarged by whole factors, a cell a rectangle
// of one colour; large ones are shrunk by whole factors to the mean of the finite values under a pixel.
struct Maps {
  std::string name;  // of the file
  std::string title = "";
  std::string caption = "";
  Axis x = {}, y = {};  // of every map, as in MapAxes
  std::optional<Extent> x_extent = std::nullopt, y_extent = std::nullopt;
  Axis value = {};                            // what the colours stand for; `limits` bound the scale; never logarithmic
  ColourMap colours = ColourMap::sequential;  // diverging: without limits the scale is symmetric about zero
  bool shared_scale = true;                   // false: each map has a scale and a colour bar of its own
  std::vector<Map> maps = {};
};
[[nodiscard]] Picture maps(const Maps& what);

// How often each class (column) was predicted for each true class (row): the colour is the share of the row, the number the
// count. Rows without a sample are grey. At most 400 classes; numbers and names are left out where cells are too small for them.
struct Matrix {
  std::string name;  // of the file
  std::string title = "";
  std::string caption = "";
  std::vector<std::string> classes = {};
  std::vector<std::int64_t> counts = {};  // classes * classes, not negative
  std::string row_label = "true class", column_label = "predicted class";
};
[[nodiscard]] Picture matrix(const Matrix& what);

struct Sampled {
  std::string name;  // in the legend
  std::vector<float> values = {};
};

// How often values lie in each of equally wide bins, which all series share.
struct Histograms {
  std::string name;  // of the file
  std::string title = "";
  std::string caption = "";
  Axis x = {};  // never logarithmic; values outside `limits` are left out and counted
  bool log_counts = false;
  std::int64_t bins = 0;  // 1 to 400; 0: twice the cube root of the largest series (Rice's rule)
  std::vector<Sampled> series = {};
};
[[nodiscard]] Picture histograms(const Histograms& what);

// Of a pixel of the array; an image is drawn in these proportions, as far as whole factors allow.
struct PixelSize {
  double height = 1, width = 1;  // finite, above 0
  std::string unit = "";         // "mm"; empty: a number without a unit
};

struct Image {
  std::string caption = "";
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 3;  // 1 grey, 3 RGB; last in memory: height * width * channels values
  std::variant<std::vector<std::uint8_t>, std::vector<float>> pixels = {};
  Range range = {};                                 // of floats: what is black and what is white
  std::optional<ColourMap> colours = std::nullopt;  // of floats of one channel: these instead of black to white
  std::optional<PixelSize> size = std::nullopt;     // with it, a scale bar of a round length stands under the image
};

// At most 60 images are shown, and the caption says of how many. Enlarged and shrunk as maps are; an image much longer than wide
// (or wider than long) is stretched so that it can be seen.
struct Images {
  std::string name;  // of the file
  std::string title = "";
  std::string caption = "";
  std::int64_t columns = 0;  // images side by side, at most 8; 0: as many as suit their number
  std::vector<Image> images = {};
};
[[nodiscard]] Picture images(const Images& what);

}  // namespace millrace::picture
