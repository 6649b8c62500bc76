// Positions of the cells in a picture of maps, of a matrix and of images; tests read them too.
#pragma once

#include <string>
#include <vector>

#include "millrace/picture/detail/page.h"

namespace millrace::picture::detail {

struct Panel {
  Box cells;  // edges are whole numbers
  Fits fits;
  Box bar;  // its separate colour bar
  bool first_column = true;
};

struct MapsLayout {
  std::vector<Panel> panels;
  std::vector<Range> ranges;  // of the colours of each map
  double top = 0, height = 0;
  std::int64_t lost = 0, all = 0, outside = 0;  // counts of values: not finite, in all, beyond the scale
};
[[nodiscard]] MapsLayout layout_of(const Maps& what);  // throws as maps() does

struct MatrixLayout {
  double top = 0, height = 0;
  Box cells;
  double side = 0;
};
[[nodiscard]] MatrixLayout layout_of(const Matrix& what);
[[nodiscard]] double name_room(const Matrix& what);  // width of the longest class name

// Stands under an image; has no length if the image has no size.
struct ScaleBar {
  double length = 0;  // in pixels of the picture
  std::string text = "";
};

struct ImagesLayout {
  double top = 0, height = 0;
  std::vector<Box> cells;
  std::vector<Fits> fits;
  std::vector<double> rooms;  // widths for captions
  std::vector<ScaleBar> bars;
};
[[nodiscard]] ImagesLayout layout_of(const Images& what);
[[nodiscard]] std::size_t size_of(const Image& image);  // number of values

}  // namespace millrace::picture::detail
