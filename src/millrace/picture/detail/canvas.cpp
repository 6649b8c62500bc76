#include "millrace/picture/detail/canvas.h"

#include <cairo-ft.h>
#include <cairo.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/utf8.h"

// Embeds the whole font file, with the licence in its name table.
asm(R"(
  .section .rodata
  .balign 16
  .global millrace_font_begin
  .hidden millrace_font_begin
  .global millrace_font_end
  .hidden millrace_font_end
millrace_font_begin:
  .incbin ")" MILLRACE_FONT_FILE R"("
millrace_font_end:
  .previous
)");
extern "C" {
extern const unsigned char millrace_font_begin;  // NOLINT(readability-identifier-naming): the assembler's
extern const unsigned char millrace_font_end;    // NOLINT(readability-identifier-naming)
}

namespace millrace::picture::detail {
namespace {

// Two threads must not use FreeType's face at once.
std::mutex& font_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Returns the font face, which exists as long as the process, because Cairo keeps scaled fonts that refer to it.
cairo_font_face_t* font() {
  static cairo_font_face_t* const face = [] {
    FT_Library library = nullptr;
    FT_Face loaded = nullptr;
    MR_CHECK(FT_Init_FreeType(&library) == 0, "FreeType does not start");
    const auto bytes = static_cast<FT_Long>(&millrace_font_end - &millrace_font_begin);
    MR_CHECK(FT_New_Memory_Face(library, &millrace_font_begin, bytes, 0, &loaded) == 0, "FreeType can't read the font");
    return cairo_ft_font_face_create_for_ft_face(loaded, 0);
  }();
  return face;
}

void set_font(cairo_t* context, double size) {
  cairo_set_font_face(context, font());
  cairo_set_font_size(context, size);
  cairo_font_options_t* options = cairo_font_options_create();
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_SLIGHT);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_set_font_options(context, options);
  cairo_font_options_destroy(options);
}

void set_colour(cairo_t* context, Colour colour, double opacity = 1) {
  cairo_set_source_rgba(context, colour[0] / 255.0, colour[1] / 255.0, colour[2] / 255.0, opacity);
}

// Replaces bytes that are not UTF-8, because after such a byte Cairo draws nothing more. Replaces control characters by blanks.
std::string cleaned(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    append_utf8(result, step.code_point < 0x20 || step.code_point == 0x7F ? U' ' : step.code_point);
    at += step.size;
  }
  return result;
}

// Returns the text. If the text does not fit, returns as many characters as fit, followed by "…".
std::string cut(const std::string& text, double size, double width) {
  std::vector<std::size_t> ends{0};
  for (std::size_t at = 0; at < text.size();) ends.push_back(at += decode_utf8(text, at).size);
  std::size_t low = 0;
  std::size_t high = std::min<std::size_t>(ends.size() - 1, 400);  // no line of a picture has more characters
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (text_width(text.substr(0, ends[middle]) + "…", size) <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  std::string start = text.substr(0, ends[low]);
  while (start.ends_with(' ')) start.pop_back();
  return start + "…";
}

}  // namespace

struct Canvas::Cairo {
  cairo_surface_t* surface;
  cairo_t* context;
  Cairo(std::int64_t width, std::int64_t height)
      : surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width), static_cast<int>(height))),
        context(cairo_create(surface)) {}
  ~Cairo() {
    cairo_destroy(context);
    cairo_surface_destroy(surface);
  }
  Cairo(const Cairo&) = delete;
  Cairo& operator=(const Cairo&) = delete;
};

Canvas::Canvas(std::int64_t width, std::int64_t height) : cairo_(std::make_unique<Cairo>(width, height)) {
  MR_CHECK(cairo_status(cairo_->context) == CAIRO_STATUS_SUCCESS, cairo_status_to_string(cairo_status(cairo_->context)));
  set_colour(cairo_->context, {255, 255, 255});
  cairo_paint(cairo_->context);
}

Canvas::~Canvas() = default;

void Canvas::fill(const Box& box, Colour colour, double opacity) {
  set_colour(cairo_->context, colour, opacity);
  cairo_rectangle(cairo_->context, box.left, box.top, box.width, box.height);
  cairo_fill(cairo_->context);
}

void Canvas::frame(const Box& box, const Pen& pen) {
  set_colour(cairo_->context, pen.colour);
  cairo_set_line_width(cairo_->context, pen.width);
  cairo_set_dash(cairo_->context, nullptr, 0, 0);
  cairo_rectangle(cairo_->context, box.left - pen.width / 2, box.top - pen.width / 2, box.width + pen.width,
                  box.height + pen.width);
  cairo_stroke(cairo_->context);
}

void Canvas::line(Point from, Point to, const Pen& pen) {
  const Point points[] = {from, to};
  path(points, pen, {-1e6, -1e6, 2e6, 2e6});
}

void Canvas::path(std::span<const Point> points, const Pen& pen, const Box& inside) {
  cairo_t* context = cairo_->context;
  cairo_save(context);
  cairo_rectangle(context, inside.left, inside.top, inside.width, inside.height);
  cairo_clip(context);
  set_colour(context, pen.colour);
  cairo_set_line_width(context, pen.width);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  const double dashes[] = {4 * pen.width, 3 * pen.width};
  cairo_set_dash(context, dashes, pen.dashed ? 2 : 0, 0);
  bool open = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) {
      open = false;
      continue;
    }
    const bool alone = !open && (i + 1 == points.size() || !std::isfinite(points[i + 1].x) || !std::isfinite(points[i + 1].y));
    if (alone) {
      cairo_rectangle(context, p.x - pen.width, p.y - pen.width, 2 * pen.width, 2 * pen.width);
    } else if (open) {
      cairo_line_to(context, p.x, p.y);
    } else {
      cairo_move_to(context, p.x, p.y);
    }
    open = !alone;
  }
  cairo_stroke(context);
  cairo_restore(context);
}

void Canvas::text(const std::string& text, Point at, const Writing& writing) {
  const double width = text_width(text, writing.size);
  const double back = writing.align == Align::start ? 0 : writing.align == Align::middle ? width / 2 : width;
  const std::lock_guard lock(font_mutex());
  cairo_t* context = cairo_->context;
  cairo_save(context);
  set_font(context, writing.size);
  set_colour(context, writing.colour);
  cairo_translate(context, at.x, at.y);
  if (writing.upwards) cairo_rotate(context, -std::acos(0.0));
  cairo_move_to(context, -back, 0);
  cairo_show_text(context, text.c_str());
  cairo_restore(context);
}

void Canvas::pixels(const Box& box, const std::function<Colour(std::int64_t, std::int64_t)>& colour) {
  cairo_surface_flush(cairo_->surface);
  unsigned char* data = cairo_image_surface_get_data(cairo_->surface);
  const std::int64_t stride = cairo_image_surface_get_stride(cairo_->surface);
  const auto left = static_cast<std::int64_t>(box.left);
  const auto top = static_cast<std::int64_t>(box.top);
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(box.height); ++row) {
    auto* out = reinterpret_cast<std::uint32_t*>(data + (top + row) * stride) + left;
    for (std::int64_t column = 0; column < static_cast<std::int64_t>(box.width); ++column) {
      const Colour c = colour(row, column);
      out[column] = static_cast<std::uint32_t>(c[0]) << 16U | static_cast<std::uint32_t>(c[1]) << 8U | c[2];
    }
  }
  cairo_surface_mark_dirty(cairo_->surface);
}

Picture Canvas::picture(std::string name) const {
  MR_CHECK(cairo_status(cairo_->context) == CAIRO_STATUS_SUCCESS, cairo_status_to_string(cairo_status(cairo_->context)));
  cairo_surface_flush(cairo_->surface);
  const std::int64_t width = cairo_image_surface_get_width(cairo_->surface);
  const std::int64_t height = cairo_image_surface_get_height(cairo_->surface);
  const std::int64_t stride = cairo_image_surface_get_stride(cairo_->surface);
  const unsigned char* data = cairo_image_surface_get_data(cairo_->surface);
  Picture result{std::move(name), width, height, {}};
  result.rgb.reserve(static_cast<std::size_t>(width * height * 3));
  for (std::int64_t row = 0; row < height; ++row) {
    const auto* pixel = reinterpret_cast<const std::uint32_t*>(data + row * stride);
    for (std::int64_t column = 0; column < width; ++column) {
      for (const unsigned shift : {16U, 8U, 0U}) result.rgb.push_back(static_cast<std::uint8_t>(pixel[column] >> shift & 255U));
    }
  }
  return result;
}

double text_width(const std::string& text, double size) {
  const std::lock_guard lock(font_mutex());
  static cairo_t* const context = cairo_create(cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1));
  set_font(context, size);
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  return extents.x_advance;
}

std::string fitted(std::string_view text, double size, double width) {
  const std::string whole = cleaned(text.substr(0, 4000));
  return whole.size() <= 400 && text_width(whole, size) <= width ? whole : cut(whole, size, width);
}

std::vector<std::string> wrapped(std::string_view text, double size, double width, std::size_t most) {
  std::string rest = cleaned(text.substr(0, 4000));
  std::vector<std::string> lines;
  while (!rest.empty() && lines.size() + 1 < most) {
    std::size_t end = 0;  // end of the words that fit into the line
    for (std::size_t blank = 0; end < rest.size(); end = blank) {
      blank = std::min(rest.find(' ', end + 1), rest.size());
      if (text_width(rest.substr(0, blank), size) > width) break;
    }
    if (end == 0) end = std::min(rest.find(' ', 1), rest.size());  // a word that is longer than a line is cut
    lines.push_back(fitted(rest.substr(0, end), size, width));
    rest.erase(0, std::min(rest.find_first_not_of(' ', end), rest.size()));
  }
  if (!rest.empty() && most > 0) lines.push_back(fitted(rest, size, width));
  return lines;
}

}  // namespace millrace::picture::detail
