// A white sheet to draw on. Cairo draws; FreeType draws letters with the font inside this program. Lengths are in pixels, y
// points downwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/picture/colour.h"
#include "millrace/picture/picture.h"

namespace millrace::picture::detail {

inline constexpr double kTitleSize = 24;
inline constexpr double kTextSize = 20;
inline constexpr double kSmallSize = 18;
inline constexpr Colour kInk{30, 30, 30};
inline constexpr Colour kGrid{222, 222, 222};

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
  [[nodiscard]] double right() const { return left + width; }
  [[nodiscard]] double bottom() const { return top + height; }
  [[nodiscard]] double middle_x() const { return left + width / 2; }
  [[nodiscard]] double middle_y() const { return top + height / 2; }
};

enum class Align : std::uint8_t { start, middle, end };

struct Pen {
  Colour colour = kInk;
  double width = 1;
  bool dashed = false;
};

struct Writing {
  double size = kTextSize;
  Align align = Align::start;
  Colour colour = kInk;
  bool upwards = false;  // the text reads from bottom to top
};

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height);
  ~Canvas();
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  void fill(const Box& box, Colour colour, double opacity = 1);
  void frame(const Box& box, const Pen& pen = {});
  void line(Point from, Point to, const Pen& pen);
  // Draws a line through the points. A point that is not finite interrupts the line. Parts outside `inside` are not drawn.
  void path(std::span<const Point> points, const Pen& pen, const Box& inside);
  // `at` is a point of the base line. `text` is a single line, as wrapped() returns it.
  void text(const std::string& text, Point at, const Writing& writing = {});
  // Colours each pixel of the box separately, without smoothing, by colour(row, column), counted from the upper left corner. The
  // box's edges are whole numbers.
  void pixels(const Box& box, const std::function<Colour(std::int64_t row, std::int64_t column)>& colour);
  [[nodiscard]] Picture picture(std::string name) const;

 private:
  struct Cairo;
  std::unique_ptr<Cairo> cairo_;
};

[[nodiscard]] double text_width(const std::string& text, double size);
// Returns a text as a line that fits: valid UTF-8 without control characters, cut with "…".
[[nodiscard]] std::string fitted(std::string_view text, double size, double width);
// Breaks a text at blanks into lines that fit, at most `most` lines; the last line is cut if needed.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, double size, double width, std::size_t most);

}  // namespace millrace::picture::detail
