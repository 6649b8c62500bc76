#include <algorithm>
#include <cmath>

#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/picture/detail/layout.h"

namespace millrace::picture {
namespace detail {
namespace {

constexpr std::size_t kMostImages = 60;
constexpr double kBetweenImages = 14;
constexpr double kImageCaptionLine = 22;
constexpr std::int64_t kMostColumns = 8;

void check(const std::string& name, const Image& image, std::size_t number) {
  const std::string who = "image " + std::to_string(number) + " (" + quoted(image.caption) + ")";
  const std::string shape =
      std::to_string(image.height) + " x " + std::to_string(image.width) + " x " + std::to_string(image.channels);
  if (image.height < 1 || image.width < 1) refuse(name, "has " + shape + " values in " + who, "leave the image out");
  if (image.channels != 1 && image.channels != 3) {
    refuse(name, "has " + std::to_string(image.channels) + " channels in " + who,
           "give 1 channel (grey) or 3 (RGB); the channels of a pixel are adjacent in memory; draw other channels as maps");
  }
  const std::optional<std::int64_t> count = element_count({image.height, image.width, image.channels});
  if (!count || *count != static_cast<std::int64_t>(size_of(image))) {
    refuse(name, "has " + std::to_string(size_of(image)) + " values in " + who + " of " + shape,
           "give height * width * channels values; the channels of a pixel are adjacent in memory");
  }
  check_range(name, who, image.range);
  if (image.colours && (image.channels != 1 || !std::holds_alternative<std::vector<float>>(image.pixels)))
    refuse(name, "has colours for " + who + ", but that image is not one channel of floats",
           "give one channel of floats, or leave the colours out");
  const auto is_size = [](double size) { return std::isfinite(size) && size > 0; };
  if (image.size && !(is_size(image.size->height) && is_size(image.size->width)))
    refuse(name, "has an invalid pixel size for " + who, "give a height and a width above 0, or leave the size out");
}

// Returns `fits`, but with rows of the height that the pixel size requires, or with lower rows if the image would be too high.
Fits in_proportion(const Image& image, Fits fits, double greatest_height) {
  if (!image.size) return fits;
  const double wanted = static_cast<double>(fits.columns.zoom) / static_cast<double>(fits.columns.shrink) * image.size->height /
                        image.size->width;  // height of a row on the picture, in pixels
  const double most = greatest_height / static_cast<double>(image.height);
  const double row = std::min(wanted, most);
  fits.rows = {.cells = image.height};
  if (row >= 1) {
    fits.rows.zoom = std::max<std::int64_t>(1, std::llround(row));
  } else {
    fits.rows.shrink = static_cast<std::int64_t>(std::ceil(1 / row));
  }
  return fits;
}

// Returns the longest scale bar of 1, 2 or 5 times a power of ten that takes at most a third of the image.
ScaleBar bar_of(const Image& image, const Fits& fits) {
  if (!image.size) return {};
  const double pixel = static_cast<double>(fits.columns.zoom) / static_cast<double>(fits.columns.shrink) / image.size->width;
  const double most = static_cast<double>(fits.columns.pixels()) / 3 / pixel;
  const double power = std::pow(10.0, std::floor(std::log10(most)));
  double length = power;
  for (const double step : {2.0, 5.0}) length = step * power <= most ? step * power : length;
  return {length * pixel, significant(length, 6) + (image.size->unit.empty() ? "" : " " + image.size->unit)};
}

}  // namespace

std::size_t size_of(const Image& image) {
  return std::visit([](const auto& pixels) { return pixels.size(); }, image.pixels);
}

ImagesLayout layout_of(const Images& what) {
  if (what.images.empty()) refuse(what.name, "has no images", "give it one image or more, or do not draw it");
  for (std::size_t i = 0; i < what.images.size(); ++i) check(what.name, what.images[i], i);
  ImagesLayout layout{.top = Page::top(what.title)};
  const std::size_t shown = std::min(what.images.size(), kMostImages);
  if (what.columns < 0 || what.columns > kMostColumns)
    refuse(what.name, "has " + std::to_string(what.columns) + " columns", "give 1 to 8, or 0 to choose automatically");
  const std::size_t columns = what.columns > 0 ? static_cast<std::size_t>(what.columns) : shown <= 3 ? shown : shown <= 8 ? 4 : 5;
  const double room = std::floor((kInner - kBetweenImages * static_cast<double>(columns - 1)) / static_cast<double>(columns));
  double top = layout.top + 4;
  for (std::size_t first = 0; first < shown; first += columns) {
    double height = 0;
    std::size_t lines = 0;
    for (std::size_t i = first; i < std::min(first + columns, shown); ++i) {
      const Image& image = what.images[i];
      const double greatest = std::min(1.5 * room, 640.0);
      const Fits one = in_proportion(image, fits(image.height, image.width, std::min(room, 480.0), 24, greatest), greatest);
      layout.fits.push_back(one);
      layout.bars.push_back(bar_of(image, one));
      layout.cells.push_back({kMargin + static_cast<double>(i - first) * (room + kBetweenImages), top,
                              static_cast<double>(one.columns.pixels()), static_cast<double>(one.rows.pixels())});
      layout.rooms.push_back(room);
      height = std::max(height, layout.cells.back().height);
      lines = std::max(lines, wrapped(image.caption, kSmallSize, room, 2).size() + (image.size ? 1 : 0));
    }
    top += std::round(height + kImageCaptionLine * static_cast<double>(lines) + kBetweenImages + 4);
  }
  layout.height = top - layout.top;
  return layout;
}

}  // namespace detail

namespace {

using namespace detail;

double value_at(const Image& image, const Fits& fits, std::int64_t row, std::int64_t column, std::int64_t channel) {
  if (const auto* floats = std::get_if<std::vector<float>>(&image.pixels)) {
    const double mean = mean_under(*floats, fits, row, column, image.channels, channel);
    return (mean - image.range.low) / (image.range.high - image.range.low);
  }
  const auto& bytes = std::get<std::vector<std::uint8_t>>(image.pixels);
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t y = fits.rows.first(row); y < fits.rows.end(row); ++y) {
    for (std::int64_t x = fits.columns.first(column); x < fits.columns.end(column); ++x, ++count) {
      sum += bytes[static_cast<std::size_t>((y * image.width + x) * image.channels + channel)];
    }
  }
  return sum / static_cast<double>(count) / 255;
}

Colour colour_at(const Image& image, const Fits& fits, std::int64_t row, std::int64_t column) {
  if (image.colours) return colour_of(*image.colours, value_at(image, fits, row, column, 0));
  Colour colour{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const auto stored = static_cast<std::int64_t>(image.channels == 1 ? 0 : channel);
    const double value = value_at(image, fits, row, column, stored);
    if (std::isnan(value)) return kNoNumber;
    colour.at(channel) = static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
  }
  return colour;
}

}  // namespace

Picture images(const Images& what) {
  const ImagesLayout layout = layout_of(what);
  std::int64_t lost = 0;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < layout.cells.size(); ++i) {
    const auto* floats = std::get_if<std::vector<float>>(&what.images[i].pixels);
    all += static_cast<std::int64_t>(size_of(what.images[i]));
    if (floats != nullptr)
      lost += std::count_if(floats->begin(), floats->end(), [](float value) { return !std::isfinite(value); });
  }
  const std::string some = layout.cells.size() == what.images.size()
                               ? ""
                               : std::to_string(layout.cells.size()) + " of " + std::to_string(what.images.size()) + " images.";
  Page page(what.name, what.title, sentences({what.caption, some, not_finite(lost, all, "grey")}), layout.height);
  Canvas& canvas = page.canvas();
  for (std::size_t i = 0; i < layout.cells.size(); ++i) {
    const Box& cells = layout.cells[i];
    const Fits& fits = layout.fits[i];
    canvas.pixels(cells, [&](std::int64_t row, std::int64_t column) { return colour_at(what.images[i], fits, row, column); });
    canvas.frame(cells, {.colour = {120, 120, 120}});
    double y = cells.bottom() + 19;
    if (const ScaleBar& bar = layout.bars[i]; !bar.text.empty()) {
      canvas.fill({cells.left, y - 8, bar.length, 4}, kInk);
      canvas.text(bar.text, {cells.left + bar.length + 8, y}, {.size = kSmallSize});
      y += kImageCaptionLine;
    }
    for (const std::string& line : wrapped(what.images[i].caption, kSmallSize, layout.rooms[i], 2)) {
      canvas.text(line, {cells.left, y}, {.size = kSmallSize});
      y += kImageCaptionLine;
    }
  }
  return page.picture();
}

}  // namespace millrace::picture
