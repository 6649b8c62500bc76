// What all pictures share: a title above, a caption below, axes around a box, colour bars, legends, refusals.
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

// "picture "maps" ..." is the subject of `what`.
[[noreturn]] void refuse(const std::string& picture, const std::string& what, const std::string& next);
void check_axis(const std::string& picture, const std::string& which, const Axis& axis, bool may_be_logarithmic = true);
void check_range(const std::string& picture, const std::string& which, const Range& range);

// Title and caption, and the room between them.
class Page {
 public:
  // `body` is the height between title and caption; refuses what is higher than kGreatestHeight.
  Page(const std::string& name, const std::string& title, const std::string& caption, double body);
  [[nodiscard]] Canvas& canvas() { return canvas_; }
  [[nodiscard]] Picture picture() const { return canvas_.picture(name_); }
  // Of the body, for a title like this.
  [[nodiscard]] static double top(const std::string& title);

 private:
  std::string name_;
  Canvas canvas_;
};

// Sentences of a caption, a blank between them.
[[nodiscard]] std::string sentences(std::initializer_list<std::string> parts);
// "3 of 64 values are not finite (grey)"; "" when none is.
[[nodiscard]] std::string not_finite(std::int64_t count, std::int64_t of, const std::string& how);

// The most labels that fit side by side on `length` pixels.
[[nodiscard]] Ticks ticks_across(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] Ticks ticks_up(const Axis& axis, Range range, double length, bool whole = false);
[[nodiscard]] double widest(const Ticks& ticks);
inline constexpr double kBelowAxis = 60;   // labels of ticks and of the axis under a box
inline constexpr double kBesideAxis = 34;  // the label of an axis left of its ticks

struct Sides {
  const Ticks& ticks;
  const Axis& axis;
  bool backwards = false;  // from right to left, or from above to below
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

// `cells` things on about `pixels` pixels: each `zoom` pixels wide, or `shrink` of them on a pixel.
struct Fit {
  std::int64_t cells = 1, zoom = 1, shrink = 1;
  [[nodiscard]] std::int64_t pixels() const { return zoom * ((cells + shrink - 1) / shrink); }
  [[nodiscard]] std::int64_t first(std::int64_t pixel) const { return pixel / zoom * shrink; }
  [[nodiscard]] std::int64_t end(std::int64_t pixel) const { return std::min(cells, first(pixel) + shrink); }
  // Cells up to the outer edge of the last pixel: the last pixel may be one of fewer cells than the others.
  [[nodiscard]] std::int64_t covered() const { return (cells + shrink - 1) / shrink * shrink; }
};
[[nodiscard]] Fit fit(std::int64_t cells, double pixels);

// Rows and columns of `height` x `width` cells on a room of that width: square cells where that gives a shape one can look at.
struct Fits {
  Fit rows, columns;
};
[[nodiscard]] Fits fits(std::int64_t height, std::int64_t width, double room, double least_height, double greatest_height);

// The mean of the finite values under a pixel, NaN where there is none. `channels` values a cell.
[[nodiscard]] double mean_under(std::span<const float> values, const Fits& fits, std::int64_t row, std::int64_t column,
                                std::int64_t channels = 1, std::int64_t channel = 0);

}  // namespace millrace::picture::detail
