#include "millrace/picture/detail/page.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::picture::detail {
namespace {

constexpr double kTitleLine = 32;
constexpr double kCaptionLine = 26;
constexpr std::size_t kMostTitleLines = 3;
constexpr std::size_t kMostCaptionLines = 8;

std::vector<std::string> title_lines(const std::string& title) { return wrapped(title, kTitleSize, kInner, kMostTitleLines); }
std::vector<std::string> caption_lines(const std::string& caption) {
  return wrapped(caption, kSmallSize, kInner, kMostCaptionLines);
}

std::int64_t page_height(const std::string& name, const std::string& title, const std::string& caption, double body) {
  const double below = static_cast<double>(caption_lines(caption).size()) * kCaptionLine;
  const double height = std::ceil(Page::top(title) + body + below + kMargin);
  if (height <= static_cast<double>(kGreatestHeight)) return static_cast<std::int64_t>(height);
  refuse(
      name,
      "needs " + fixed(height, 0) + " pixels of height, more than the " + std::to_string(kGreatestHeight) + " that are allowed",
      "show less in the picture, or draw several pictures");
}

}  // namespace

void refuse(const std::string& picture, const std::string& what, const std::string& next) {
  throw RecipeError({"picture " + quoted(picture) + " " + what, "millrace/picture/draw.h", next});
}

void check_range(const std::string& picture, const std::string& which, const Range& range) {
  if (std::isfinite(range.low) && std::isfinite(range.high) && range.low < range.high) return;
  refuse(picture, "has the limits " + significant(range.low, 6) + " to " + significant(range.high, 6) + " for " + which,
         "give two finite numbers, the lower one first, or leave the limits out");
}

void check_axis(const std::string& picture, const std::string& which, const Axis& axis, bool may_be_logarithmic) {
  if (axis.logarithmic && !may_be_logarithmic) {
    refuse(picture, "can't have a logarithmic " + which, "draw the logarithm of the values, and say so in the label");
  }
  if (!axis.limits) return;
  check_range(picture, which, *axis.limits);
  if (axis.logarithmic && axis.limits->low <= 0) {
    refuse(picture, "has the lower limit " + significant(axis.limits->low, 6) + " for the logarithmic " + which,
           "give a limit above zero, or leave the limits out");
  }
}

Page::Page(const std::string& name, const std::string& title, const std::string& caption, double body)
    : name_(name), canvas_(kWidth, page_height(name, title, caption, body)) {
  double y = kMargin + kTitleSize - 2;
  for (const std::string& line : title_lines(title)) {
    canvas_.text(line, {kMargin, y}, {.size = kTitleSize});
    y += kTitleLine;
  }
  y = top(title) + body + kSmallSize;
  for (const std::string& line : caption_lines(caption)) {
    canvas_.text(line, {kMargin, y}, {.size = kSmallSize, .colour = {70, 70, 70}});
    y += kCaptionLine;
  }
}

double Page::top(const std::string& title) { return kMargin + static_cast<double>(title_lines(title).size()) * kTitleLine + 4; }

std::string sentences(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!text.empty()) text += text.ends_with('.') ? " " : ". ";
    text += part;
  }
  return text;
}

std::string not_finite(std::int64_t count, std::int64_t of, const std::string& how) {
  if (count == 0) return "";
  return with_commas(count) + " of " + with_commas(of) + " values " + (count == 1 ? "is" : "are") + " not finite (" + how + ").";
}

double widest(const Ticks& ticks) {
  double width = 0;
  for (const Tick& tick : ticks.marks) width = std::max(width, text_width(tick.label, kSmallSize));
  return width;
}

Ticks ticks_across(const Axis& axis, Range range, double length, bool whole) {
  for (int most = 9; most > 1; --most) {
    Ticks ticks = axis.logarithmic ? log_ticks(range, most) : linear_ticks(range, most, whole);
    double needed = 0;
    for (const Tick& tick : ticks.marks) needed += tick.label.empty() ? 0 : text_width(tick.label, kSmallSize) + 26;
    if (needed <= length + 26) return ticks;
  }
  return axis.logarithmic ? log_ticks(range, 1) : linear_ticks(range, 2, whole);
}

Ticks ticks_up(const Axis& axis, Range range, double length, bool whole) {
  const int most = std::clamp(static_cast<int>(length / 44), 2, 8);
  return axis.logarithmic ? log_ticks(range, most) : linear_ticks(range, most, whole);
}

void draw_sides(Canvas& canvas, const Box& box, const Sides& x, const Sides& y, bool grid) {
  constexpr double kLong = 7;
  constexpr double kShort = 4;
  const Pen thin{.colour = kGrid};
  for (const Tick& tick : x.ticks.marks) {
    const double share = x.ticks.share(tick.value);
    const double at = std::round(box.left + (x.backwards ? 1 - share : share) * box.width) + 0.5;
    if (grid && !tick.label.empty()) canvas.line({at, box.top}, {at, box.bottom()}, thin);
    canvas.line({at, box.bottom()}, {at, box.bottom() + (tick.label.empty() ? kShort : kLong)}, {});
    canvas.text(tick.label, {at, box.bottom() + 25}, {.size = kSmallSize, .align = Align::middle});
  }
  for (const Tick& tick : y.ticks.marks) {
    const double share = y.ticks.share(tick.value);
    const double at = std::round(box.top + (y.backwards ? share : 1 - share) * box.height) + 0.5;
    if (grid && !tick.label.empty()) canvas.line({box.left, at}, {box.right(), at}, thin);
    canvas.line({box.left - (tick.label.empty() ? kShort : kLong), at}, {box.left, at}, {});
    canvas.text(tick.label, {box.left - 11, at + 6}, {.size = kSmallSize, .align = Align::end});
  }
  canvas.frame(box);
  if (x.labelled) {
    const std::string text = fitted(axis_text(x.axis, x.ticks.exponent), kTextSize, std::max(box.width + 40, 120.0));
    canvas.text(text, {box.middle_x(), box.bottom() + kBelowAxis - 8}, {.align = Align::middle});
  }
  if (y.labelled) {
    const std::string text = fitted(axis_text(y.axis, y.ticks.exponent), kTextSize, box.height + 50);
    canvas.text(text, {box.left - widest(y.ticks) - 26, box.middle_y()}, {.align = Align::middle, .upwards = true});
  }
}

void draw_colour_bar(Canvas& canvas, const Box& room, ColourMap colours, const Axis& axis, Range range) {
  const Box bar{std::round(room.left), std::round(room.top + 4), std::round(room.width), 16};
  const Ticks ticks = ticks_across(axis, range, bar.width);
  canvas.pixels(bar, [&](std::int64_t, std::int64_t column) {
    return colour_of(colours, (static_cast<double>(column) + 0.5) / bar.width);
  });
  const Ticks none{.range = {0, 1}, .logarithmic = false, .marks = {}};
  const Axis nameless;
  draw_sides(canvas, bar, {.ticks = ticks, .axis = axis}, {.ticks = none, .axis = nameless, .labelled = false}, false);
}

Legend legend_of(const std::vector<std::string>& names) {
  constexpr double kSwatch = 46;
  constexpr double kLine = 28;
  Legend legend;
  double left = kMargin;
  double top = 0;
  for (const std::string& name : names) {
    const std::string text = fitted(name, kTextSize, kInner - kSwatch);
    const double width = kSwatch + text_width(text, kTextSize);
    if (left > kMargin && left + width > kMargin + kInner) {
      left = kMargin;
      top += kLine;
    }
    legend.entries.push_back({text, left, top});
    left += width + 28;
  }
  legend.height = names.empty() ? 0 : top + kLine + 8;
  return legend;
}

void draw_legend(Canvas& canvas, const Legend& legend, double top, bool boxes) {
  for (std::size_t i = 0; i < legend.entries.size(); ++i) {
    const Legend::Entry& entry = legend.entries[i];
    const double middle = top + entry.top + 14;
    if (boxes) {
      canvas.fill({entry.left, middle - 8, 34, 16}, line_colour(i), 0.35);
      canvas.frame({entry.left + 1, middle - 7, 32, 14}, {.colour = line_colour(i), .width = 2});
    } else {
      canvas.line({entry.left, middle}, {entry.left + 36, middle}, {.colour = line_colour(i), .width = 4, .dashed = i >= 8});
    }
    canvas.text(entry.name, {entry.left + 44, middle + 7});
  }
}

Fit fit(std::int64_t cells, double pixels) {
  const auto room = std::max<std::int64_t>(1, static_cast<std::int64_t>(pixels));
  if (cells <= room) return {.cells = cells, .zoom = room / cells};
  return {.cells = cells, .zoom = 1, .shrink = (cells + room - 1) / room};
}

Fits fits(std::int64_t height, std::int64_t width, double room, double least_height, double greatest_height) {
  const Fit columns = fit(width, room);
  const Fit same{.cells = height, .zoom = columns.zoom, .shrink = columns.shrink};
  const auto natural = static_cast<double>(same.pixels());
  if (natural >= least_height && natural <= greatest_height) return {same, columns};
  return {fit(height, natural < least_height ? least_height + static_cast<double>(height) / 2 : greatest_height), columns};
}

double mean_under(std::span<const float> values, const Fits& fits, std::int64_t row, std::int64_t column, std::int64_t channels,
                  std::int64_t channel) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t y = fits.rows.first(row); y < fits.rows.end(row); ++y) {
    for (std::int64_t x = fits.columns.first(column); x < fits.columns.end(column); ++x) {
      const double value = values[static_cast<std::size_t>((y * fits.columns.cells + x) * channels + channel)];
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
  }
  return count == 0 ? std::nan("") : sum / static_cast<double>(count);
}

}  // namespace millrace::picture::detail
