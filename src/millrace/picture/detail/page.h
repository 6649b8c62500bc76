// What all pictures share: a title at the top, a caption at the bottom, axes around a box, colour bars, legends, error messages.
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

// Throws an error whose sentence begins with "picture "maps" ...".
[[noreturn]] void refuse(const std::string& picture, const std::string& what, const std::string& next);
void check_axis(const std::string& picture, const std::string& which, const Axis& axis, bool may_be_logarithmic = true);
void check_range(const std::string& picture, const std::string& which, const Range& range);

// Title and caption, and the space between them.
class Page {
 public:
  // `body` is the height between title and caption; throws if the page would be higher than kGreatestHeight.
  Page(const std::string& name, const std::string& title, const std::string& caption, double body);
  [[nodiscard]] Canvas& canvas() { return canvas_; }
  [[nodiscard]] Picture picture() const { return canvas_.picture(name_); }
  // The position at which the body begins below such a title.
  [[nodiscard]] static double top(const std::string& title);

 private:
  std::string name_;
  Canvas canvas_;
};

// Joins the sentences of a caption with blanks.
[[nodiscard]] std::string sentences(std::initializer_list<std::string> parts);
// "3 of 64 values are not finite (grey)"; "" if all values are finite.
[[nodiscard]] std::string not_finite(std::int64_t count, std::int64_t of, const std::string& how);

// As many labels as fit side by side on `length` pixels.
[[nodiscard]] Ticks ticks_across(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] Ticks ticks_up(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] double widest(const Ticks& ticks);
inline constexpr double kBelowAxis = 60;   // labels of ticks and of the axis under a box
inline constexpr double kBesideAxis = 34;  // the label of an axis to the left of its ticks

struct Sides {
  const Ticks& ticks;
  const Axis& axis;
  bool backwards = false;  // from right to left, or from top to bottom
  bool labelled = true;
};
// Frame, ticks and labels around the box; `grid` draws lines through it.
void draw_sides(Canvas& canvas, const Box& box, const Sides& x, const Sides& y, bool grid);

// A horizontal bar of colours, its ticks and its label; takes kBarHeight.
inline constexpr double kBarHeight = 82;
void draw_colour_bar(Canvas& canvas, const Box& room, ColourMap colours, const Axis& axis, Range range);

// Swatches and names, as many lines as they need.
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

// Cells along an axis of an array, drawn on pixels: each cell is `zoom` pixels wide, or a pixel covers `shrink` cells.
struct Fit {
  std::int64_t cells = 1, zoom = 1, shrink = 1;
  [[nodiscard]] std::int64_t pixels() const { return zoom * ((cells + shrink - 1) / shrink); }
  [[nodiscard]] std::int64_t first(std::int64_t pixel) const { return pixel / zoom * shrink; }
  [[nodiscard]] std::int64_t end(std::int64_t pixel) const { return std::min(cells, first(pixel) + shrink); }
  // Cells up to the outer edge of the last pixel, which may hold fewer cells than the others.
  [[nodiscard]] std::int64_t covered() const { return (cells + shrink - 1) / shrink * shrink; }
};
// The largest that takes at most `pixels` pixels.
[[nodiscard]] Fit fit(std::int64_t cells, double pixels);

struct Fits {
  Fit rows, columns;
};
// Fits `height` x `width` cells into a width of `room`. Cells are square if the picture's height is then between the two limits.
[[nodiscard]] Fits fits(std::int64_t height, std::int64_t width, double room, double least_height, double greatest_height);

// The mean of the finite values under a pixel; NaN if there are none. Each cell has `channels` values.
[[nodiscard]] double mean_under(std::span<const float> values, const Fits& fits, std::int64_t row, std::int64_t column,
                                std::int64_t channels = 1, std::int64_t channel = 0);

}  // namespace millrace::picture::detail
