// Computes the positions of cells in pictures of maps, of a matrix and of images. Tests read them too.
#pragma once

#include <string>
#include <vector>

#include "millrace/picture/detail/page.h"

namespace millrace::picture::detail {

struct Panel {
  Box cells;  // position of the cells; its edges are whole numbers
  Fits fits;
  Box bar;  // the map's own colour bar
  bool first_column = true;
};

struct MapsLayout {
  std::vector<Panel> panels;
  std::vector<Range> ranges;  // for each map, the range of its colours
  double top = 0, height = 0;
  std::int64_t lost = 0, all = 0, outside = 0;  // numbers of values: those that are not finite, all, and those beyond the scale
};
[[nodiscard]] MapsLayout layout_of(const Maps& what);  // throws the errors of maps()

struct MatrixLayout {
  double top = 0, height = 0;
  Box cells;
  double side = 0;
};
[[nodiscard]] MatrixLayout layout_of(const Matrix& what);
[[nodiscard]] double name_room(const Matrix& what);  // width of the longest class name

// The scale bar under an image. If the image has no pixel size, the bar's length is 0.
struct ScaleBar {
  double length = 0;  // length in pixels of the picture
  std::string text = "";
};

struct ImagesLayout {
  double top = 0, height = 0;
  std::vector<Box> cells;
  std::vector<Fits> fits;
  std::vector<double> rooms;  // for each image, the width for its caption
  std::vector<ScaleBar> bars;
};
[[nodiscard]] ImagesLayout layout_of(const Images& what);
[[nodiscard]] std::size_t size_of(const Image& image);  // number of the image's values

}  // namespace millrace::picture::detail
