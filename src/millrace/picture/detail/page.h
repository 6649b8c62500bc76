// Elements that all pictures share: a title at the top, a caption at the bottom, axes around a box, colour bars, legends, error
// messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "millrace/picture/detail/canvas.h"
#include "millrace/picture/detail/ticks.h"

namespace millrace::picture::detail {

inline constexpr double kMargin = 18;
inline constexpr double kInner = static_cast<double>(kWidth) - 2 * kMargin;

// Throws a RecipeError whose text begins with the picture's name: picture "maps" ...
[[noreturn]] void refuse(const std::string& picture, const std::string& what, const std::string& next);
void check_axis(const std::string& picture, const std::string& which, const Axis& axis, bool may_be_logarithmic = true);
void check_range(const std::string& picture, const std::string& which, const Range& range);

// A page with title and caption; the picture's body is between them.
class Page {
 public:
  // `body` is the height between title and caption. Throws if the page would be higher than kGreatestHeight.
  Page(const std::string& name, const std::string& title, const std::string& caption, double body);
  [[nodiscard]] Canvas& canvas() { return canvas_; }
  [[nodiscard]] Picture picture() const { return canvas_.picture(name_); }
  // Returns the vertical position at which the body begins below this title.
  [[nodiscard]] static double top(const std::string& title);

 private:
  std::string name_;
  Canvas canvas_;
};

// Joins the sentences of a caption with blanks, and adds missing full stops between them.
[[nodiscard]] std::string sentences(std::initializer_list<std::string> parts);
// "3 of 64 values are not finite (grey)"; "" if all values are finite.
[[nodiscard]] std::string not_finite(std::int64_t count, std::int64_t of, const std::string& how);

// The ticks of an axis on `length` pixels, with as many labels as fit next to each other.
[[nodiscard]] Ticks ticks_across(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] Ticks ticks_up(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] double widest(const Ticks& ticks);
inline constexpr double kBelowAxis = 60;   // height for the labels of ticks and axis under a box
inline constexpr double kBesideAxis = 34;  // width for an axis's label to the left of its ticks

struct Sides {
  const Ticks& ticks;
  const Axis& axis;
  bool backwards = false;  // true: from right to left, or from top to bottom
  bool labelled = true;
};
// Draws frame, ticks and labels around the box. `grid` also draws lines through it.
void draw_sides(Canvas& canvas, const Box& box, const Sides& x, const Sides& y, bool grid);

// Draws a horizontal bar of colours with its ticks and its label. All of it takes kBarHeight pixels of height.
inline constexpr double kBarHeight = 82;
void draw_colour_bar(Canvas& canvas, const Box& room, ColourMap colours, const Axis& axis, Range range);

// Colour samples with names, on as many lines as they need.
struct Legend {
  struct Entry {
    std::string name;
    double left = 0, top = 0;
  };
  std::vector<Entry> entries;
  double height = 0;
};
[[nodiscard]] Legend legend_of(const std::vector<std::string>& names);
void draw_legend(Canvas& canvas, const Legend& legend, double top, bool boxes);

// How the cells along an array's axis are drawn on pixels: each cell is `zoom` pixels wide, or each pixel covers `shrink` cells.
struct Fit {
  std::int64_t cells = 1, zoom = 1, shrink = 1;
  [[nodiscard]] std::int64_t pixels() const { return zoom * ((cells + shrink - 1) / shrink); }
  [[nodiscard]] std::int64_t first(std::int64_t pixel) const { return pixel / zoom * shrink; }
  [[nodiscard]] std::int64_t end(std::int64_t pixel) const { return std::min(cells, first(pixel) + shrink); }
  // Number of cells up to the outer edge of the last pixel, which may hold fewer cells than the others.
  [[nodiscard]] std::int64_t covered() const { return (cells + shrink - 1) / shrink * shrink; }
};
// Returns the largest fit that takes at most `pixels` pixels.
[[nodiscard]] Fit fit(std::int64_t cells, double pixels);

struct Fits {
  Fit rows, columns;
};
// Fits `height` x `width` cells into a width of `room`. Cells are square unless the height would then be below `least_height` or
// above `greatest_height`.
[[nodiscard]] Fits fits(std::int64_t height, std::int64_t width, double room, double least_height, double greatest_height);

// Returns the mean of the finite values under a pixel; NaN if no value there is finite. Each cell has `channels` values.
[[nodiscard]] double mean_under(std::span<const float> values, const Fits& fits, std::int64_t row, std::int64_t column,
                                std::int64_t channels = 1, std::int64_t channel = 0);

}  // namespace millrace::picture::detail
