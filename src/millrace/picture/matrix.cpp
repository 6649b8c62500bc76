#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/picture/detail/layout.h"

namespace millrace::picture {
namespace detail {
namespace {

constexpr std::size_t kMostClasses = 400;

void check(const Matrix& what) {
  const std::size_t classes = what.classes.size();
  if (classes == 0) refuse(what.name, "has no classes", "name the classes, or do not draw it");
  if (classes > kMostClasses) {
    refuse(what.name, "has " + std::to_string(classes) + " classes; the most is " + std::to_string(kMostClasses),
           "draw the classes that are confused most, or groups of classes");
  }
  if (what.counts.size() != classes * classes) {
    refuse(what.name,
           "has " + std::to_string(what.counts.size()) + " counts, but " + std::to_string(classes) + " classes need " +
               std::to_string(classes * classes),
           "give a count for each pair of classes, with a row for each true class");
  }
  const auto negative = std::find_if(what.counts.begin(), what.counts.end(), [](std::int64_t count) { return count < 0; });
  if (negative != what.counts.end()) {
    refuse(what.name, "has the count " + std::to_string(*negative), "give numbers of samples: 0 or more");
  }
}

}  // namespace

double name_room(const Matrix& what) {
  double room = 0;
  for (const std::string& name : what.classes) room = std::max(room, text_width(fitted(name, kSmallSize, 150), kSmallSize));
  return room;
}

MatrixLayout layout_of(const Matrix& what) {
  check(what);
  const auto classes = static_cast<double>(what.classes.size());
  MatrixLayout layout{.top = Page::top(what.title)};
  const double names = name_room(what);
  const double left = kMargin + kBesideAxis + names + 14;
  layout.side = std::clamp(std::floor((kMargin + kInner - left) / classes), 1.0, 140.0);
  layout.cells = {std::ceil(left), std::ceil(layout.top + 6), layout.side * classes, layout.side * classes};
  const double below = std::min(names, layout.side - 4) == names ? 24 : names + 12;
  layout.height = 6 + layout.cells.height + below + 40 + kBarHeight;
  return layout;
}

}  // namespace detail

namespace {

using namespace detail;

void draw_names(Canvas& canvas, const Matrix& what, const MatrixLayout& layout) {
  const double names = name_room(what);
  const bool flat = names <= layout.side - 4;
  const auto every = static_cast<std::size_t>(std::max(1.0, std::ceil(21 / layout.side)));  // a label takes 21 pixels of height
  for (std::size_t i = 0; i < what.classes.size(); i += every) {
    const std::string name = fitted(what.classes[i], kSmallSize, 150);
    const double middle = (static_cast<double>(i) + 0.5) * layout.side;
    canvas.text(name, {layout.cells.left - 8, layout.cells.top + middle + 6}, {.size = kSmallSize, .align = Align::end});
    const double x = layout.cells.left + middle;
    if (flat) {
      canvas.text(name, {x, layout.cells.bottom() + 21}, {.size = kSmallSize, .align = Align::middle});
    } else {
      canvas.text(name, {x + 6, layout.cells.bottom() + 8}, {.size = kSmallSize, .align = Align::end, .upwards = true});
    }
  }
  const double below = layout.cells.bottom() + (flat ? 24 : names + 12);
  const double width = std::max(layout.cells.width, 240.0);
  canvas.text(fitted(what.column_label, kTextSize, width), {layout.cells.middle_x(), below + 22}, {.align = Align::middle});
  canvas.text(fitted(what.row_label, kTextSize, std::max(layout.cells.height, 120.0)),
              {kMargin + kTextSize, layout.cells.middle_y()}, {.align = Align::middle, .upwards = true});
}

}  // namespace

Picture matrix(const Matrix& what) {
  const MatrixLayout layout = layout_of(what);
  const std::size_t classes = what.classes.size();
  double size = std::min(kTextSize, layout.side * 0.55);  // text size of the numbers
  for (const std::int64_t count : what.counts) {
    const std::string text = with_commas(count);
    size = std::min(size, kTextSize * (layout.side - 6) / text_width(text, kTextSize));
  }
  std::size_t empty = 0;  // number of rows without a sample
  for (auto row = what.counts.begin(); row != what.counts.end(); row += static_cast<std::ptrdiff_t>(classes)) {
    empty += std::all_of(row, row + static_cast<std::ptrdiff_t>(classes), [](std::int64_t count) { return count == 0; }) ? 1 : 0;
  }
  const std::string grey = empty == 0 ? "" : "Grey: classes without a sample.";
  Page page(what.name, what.title,
            sentences({what.caption, grey, size < 12 ? "The cells are too small to show their counts." : ""}), layout.height);
  Canvas& canvas = page.canvas();
  for (std::size_t row = 0; row < classes; ++row) {
    double all = 0;
    for (std::size_t column = 0; column < classes; ++column) all += static_cast<double>(what.counts[row * classes + column]);
    for (std::size_t column = 0; column < classes; ++column) {
      const std::int64_t count = what.counts[row * classes + column];
      const double share = all > 0 ? static_cast<double>(count) / all : std::nan("");
      const Box cell{layout.cells.left + static_cast<double>(column) * layout.side,
                     layout.cells.top + static_cast<double>(row) * layout.side, layout.side, layout.side};
      const Colour colour = colour_of(ColourMap::sequential, share);
      canvas.pixels(cell, [colour](std::int64_t, std::int64_t) { return colour; });
      if (size < 12) continue;
      const bool dark = share < 0.55;  // L* of the cell is below 58, so its number is white
      canvas.text(with_commas(count), {cell.middle_x(), cell.middle_y() + size * 0.36},
                  {.size = size, .align = Align::middle, .colour = dark ? Colour{255, 255, 255} : kInk});
    }
  }
  canvas.frame(layout.cells);
  draw_names(canvas, what, layout);
  const Axis share{.label = "share of the row"};
  const double width = std::max(layout.cells.width, 300.0);
  draw_colour_bar(canvas, {layout.cells.left, layout.top + layout.height - kBarHeight - 4, width, kBarHeight},
                  ColourMap::sequential, share, {0, 1});
  return page.picture();
}

}  // namespace millrace::picture
