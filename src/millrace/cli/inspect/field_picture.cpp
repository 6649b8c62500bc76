#include "millrace/cli/inspect/field_picture.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <array>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/picture/draw.h"

namespace millrace::cli {
namespace {

using picture::ColourMap;

constexpr std::int64_t kCurves = 6, kImages = 24, kMaps = 6, kColumns = 3, kShort = 8, kPictureSide = 8;

// Converts the values to real numbers. Pictures take f32. Callers ask for f64 if f32 would round whole numbers.
at::Tensor as_real(const at::Tensor& values, at::ScalarType type = at::kFloat) {
  return (values.is_complex() ? at::abs(values) : values).to(type).contiguous();
}

bool is_whole(const at::Tensor& values) { return !values.is_floating_point() && !values.is_complex(); }

template <class T>
std::vector<T> numbers(const at::Tensor& values) {
  const at::Tensor flat = as_real(values, sizeof(T) == sizeof(double) ? at::kDouble : at::kFloat);
  const T* const data = flat.const_data_ptr<T>();
  return {data, data + flat.numel()};
}

std::string sample(const SeenField& field, std::int64_t row) { return field.samples[static_cast<std::size_t>(row)]; }

// The axis with the number `axis`, not counting the axis of rows. An axis without a known name is called `otherwise` and counts
// indices.
FieldAxis axis_of(const SeenField& field, std::size_t axis, const char* otherwise) {
  const bool fits = static_cast<std::int64_t>(field.words.axes.size()) == field.values.dim() - 1;
  return fits ? field.words.axes[axis] : FieldAxis{.label = otherwise};
}

bool is_index(const FieldAxis& axis) { return axis.unit.empty() && axis.first == 0 && axis.step == 1; }
picture::Axis drawn(const FieldAxis& axis) { return {.label = axis.label, .unit = axis.unit}; }
double place_at(const FieldAxis& axis, std::int64_t index) { return axis.first + axis.step * static_cast<double>(index); }
std::optional<picture::Extent> extent_of(const FieldAxis& axis, std::int64_t count) {
  if (is_index(axis)) return std::nullopt;
  return picture::Extent{axis.first, place_at(axis, count - 1)};
}
picture::Axis value_of(const SeenField& field) { return {.label = field.words.value, .unit = field.words.unit}; }

std::string with_says(const SeenField& field, std::string caption) {
  if (field.description.empty()) return caption;
  return caption + (caption.empty() ? "" : "; ") + "read as " + field.description;
}

std::string first_of(std::int64_t shown, std::int64_t all, const std::string& what) {
  return shown == all ? "" : "the first " + with_commas(shown) + " of " + with_commas(all) + " " + what;
}

// "0 owl, 1 wren": the names of the values from `low` to `high`.
std::string names_of(const FieldWords& words, std::int64_t low, std::int64_t high) {
  constexpr std::int64_t kNamed = 12;
  std::vector<std::string> names;
  const std::int64_t first = std::max<std::int64_t>(low, 0), end = std::min(high + 1, std::ssize(words.names));
  for (std::int64_t value = first; value < std::min(end, first + kNamed); ++value)
    names.push_back(std::to_string(value) + " " + printable(words.names[static_cast<std::size_t>(value)]));
  return joined(names, ", ") + (end - first > kNamed ? ", …" : "");
}

// Draws a histogram. If the values are a few different whole numbers, each number has its own bin.
Picture histogram(const SeenField& field) {
  constexpr double kMostBins = 400;
  picture::Histograms what{.name = field.name,
                           .title = field.title,
                           .caption = with_says(field, ""),
                           .x = value_of(field),
                           .series = {{.name = "", .values = numbers<float>(field.values)}}};
  if (is_whole(field.values)) {
    const at::Tensor real = as_real(field.values, at::kDouble);
    const double low = real.min().item<double>(), high = real.max().item<double>();
    if (high - low < kMostBins) {
      what.bins = static_cast<std::int64_t>(high - low) + 1;
      what.x.limits = picture::Range{low - 0.5, high + 0.5};
      what.caption = with_says(field, names_of(field.words, static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
    }
  }
  return picture::histograms(what);
}

Picture column_histograms(const SeenField& field) {
  picture::Histograms what{.name = field.name, .title = field.title, .caption = with_says(field, ""), .x = value_of(field)};
  for (std::int64_t i = 0; i < field.values.size(1); ++i)
    what.series.push_back({.name = "column " + std::to_string(i), .values = numbers<float>(field.values.select(1, i))});
  return picture::histograms(what);
}

// Stacks pictures of the same width below each other.
Picture stacked(const std::vector<Picture>& some) {
  Picture all = some.front();
  for (std::size_t i = 1; i < some.size(); ++i) {
    all.height += some[i].height;
    all.rgb.insert(all.rgb.end(), some[i].rgb.begin(), some[i].rgb.end());
  }
  return all;
}

// The range of the finite values, so that the plots of all samples have the same axis. nullopt if there are fewer than two
// different finite values.
std::optional<picture::Range> range_of(const at::Tensor& values) {
  const at::Tensor real = as_real(values, at::kDouble);
  const at::Tensor finite = real.masked_select(at::isfinite(real));
  if (finite.numel() == 0) return std::nullopt;
  const picture::Range range{finite.min().item<double>(), finite.max().item<double>()};
  return range.low < range.high ? std::optional(range) : std::nullopt;
}

// Draws a plot for each of the first samples, with the same axes. For a field [C,n], each plot has a series for each channel.
Picture curves(const SeenField& field) {
  const bool has_channels = field.values.dim() == 3;
  const FieldAxis along = axis_of(field, has_channels ? 1 : 0, "index");
  const std::string of_channel = axis_of(field, 0, "channel").label;
  std::vector<double> places;
  for (std::int64_t i = 0; i < field.values.size(-1) && !is_index(along); ++i) places.push_back(place_at(along, i));
  const std::int64_t channels = has_channels ? field.values.size(1) : 1;
  const std::int64_t rows = std::min(field.values.size(0), kCurves);
  picture::Axis y = value_of(field);
  y.limits = range_of(field.values.narrow(0, 0, rows));
  std::vector<Picture> plots;
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool is_last = row + 1 == rows;
    picture::Curves what{.name = field.name,
                         .title = (row == 0 ? field.title + ": " : "") + sample(field, row),
                         .caption = is_last ? with_says(field, first_of(rows, field.values.size(0), "rows")) : "",
                         .x = drawn(along),
                         .y = y};
    const at::Tensor of_row = has_channels ? field.values[row] : field.values[row].unsqueeze(0);
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::string channel = has_channels && channels > 1 ? of_channel + " " + std::to_string(c) : "";
      what.series.push_back({.name = channel, .x = places, .y = numbers<double>(of_row[c])});
    }
    if (at::isfinite(of_row).any().item<bool>()) plots.push_back(picture::curves(what));
  }
  if (plots.empty()) throw RecipeError({"no finite value", "", ""});
  return stacked(plots);
}

picture::Map map_of(const at::Tensor& plane, std::string title) {
  return {.title = std::move(title), .height = plane.size(0), .width = plane.size(1), .values = numbers<float>(plane)};
}

Picture maps(const SeenField& field, std::vector<picture::Map> some, std::string caption, const FieldAxis& y,
             const FieldAxis& x) {
  const at::Tensor values = as_real(field.values);
  const bool has_both = values.numel() > 0 && values.lt(0).any().item<bool>() && values.gt(0).any().item<bool>();
  return picture::maps({.name = field.name,
                        .title = field.title,
                        .caption = with_says(field, std::move(caption)),
                        .x = drawn(x),
                        .y = drawn(y),
                        .x_extent = extent_of(x, some.front().width),
                        .y_extent = extent_of(y, some.front().height),
                        .value = value_of(field),
                        .colours = has_both && !field.values.is_complex() ? ColourMap::diverging : ColourMap::sequential,
                        .maps = std::move(some)});
}

// The sample's name without its label, because there is little room above each of three maps.
std::string brief(const std::string& name) { return name.substr(0, name.find(',')); }

// The place on the axis as a text, such as "12.5 mm", or the index.
std::string place_text(const FieldAxis& axis, std::int64_t index) {
  return is_index(axis) ? std::to_string(index)
                        : significant(place_at(axis, index), 4) + (axis.unit.empty() ? "" : " " + axis.unit);
}

// Draws a field [rows,channels,H,W]: as many whole samples as fit, with at most three channels.
Picture channel_maps(const SeenField& field) {
  const std::int64_t channels = std::min<std::int64_t>(3, field.values.size(1));
  const std::int64_t rows = std::min(field.values.size(0), std::max<std::int64_t>(1, 2 * kMaps / 3 / channels));
  const FieldAxis channel = axis_of(field, 0, "channel");
  std::vector<picture::Map> some;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c)
      some.push_back(
          map_of(field.values[row][c], brief(sample(field, row)) + ", " + channel.label + " " + place_text(channel, c)));
  }
  std::string caption = first_of(rows, field.values.size(0), "rows");
  if (channels < field.values.size(1))
    caption += (caption.empty() ? "" : ", ") + first_of(channels, field.values.size(1), channel.label + "s");
  return maps(field, std::move(some), std::move(caption), axis_of(field, 1, "index"), axis_of(field, 2, "index"));
}

// Draws three slices of a field [rows,C,D,H,W].
Picture middle_slices(const SeenField& field) {
  const std::int64_t channels = std::min<std::int64_t>(2, field.values.size(1));
  const std::int64_t rows = std::min<std::int64_t>(2, field.values.size(0));
  const std::array<FieldAxis, 3> axes = {axis_of(field, 1, "axis 0"), axis_of(field, 2, "axis 1"), axis_of(field, 3, "axis 2")};
  std::vector<picture::Map> some;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const at::Tensor volume = field.values[row][c];
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const std::int64_t at = volume.size(static_cast<std::int64_t>(axis)) / 2;
        some.push_back(
            map_of(volume.select(static_cast<std::int64_t>(axis), at), brief(sample(field, row)) + " c" + std::to_string(c)));
        const FieldAxis& y = axes[axis == 0 ? 1 : 0];
        const FieldAxis& x = axes[axis == 2 ? 1 : 2];
        some.back().axes = {drawn(x), drawn(y), extent_of(x, some.back().width), extent_of(y, some.back().height)};
      }
    }
  }
  std::string caption = first_of(rows, field.values.size(0), "rows");
  if (channels < field.values.size(1))
    caption += (caption.empty() ? "" : ", ") + first_of(channels, field.values.size(1), "channels");
  caption += (caption.empty() ? "" : "; ") + std::string("c is the ") + axis_of(field, 0, "channel").label +
             "; slices in the middle of each axis: ";
  for (std::size_t axis = 0; axis < 3; ++axis)
    caption += (axis == 0 ? "" : ", ") + axes[axis].label + " " +
               place_text(axes[axis], field.values.size(static_cast<std::int64_t>(axis) + 2) / 2);
  return maps(field, std::move(some), std::move(caption), {}, {});
}

// Draws images; `pixels` has the shape [rows,H,W,channels].
Picture images(const SeenField& field, const at::Tensor& pixels) {
  const std::int64_t rows = std::min(pixels.size(0), kImages);
  const at::Tensor shown = pixels.narrow(0, 0, rows);
  const bool is_bytes = pixels.scalar_type() == at::kByte;
  picture::Range range;
  std::string caption = first_of(rows, pixels.size(0), "rows");
  const at::Tensor real = as_real(shown);
  if (!is_bytes) {
    const at::Tensor finite = real.masked_select(at::isfinite(real));
    if (finite.numel() == 0) throw RecipeError({"no finite value", "", ""});
    range = {finite.min().item<double>(), finite.max().item<double>()};
    if (range.low == range.high) range.high = range.low + 1;
    caption += (caption.empty() ? "" : "; ") + std::string("black is ") + significant(range.low, 4) + ", white is " +
               significant(range.high, 4);
  }
  picture::Images what{.name = field.name, .title = field.title, .caption = with_says(field, std::move(caption))};
  for (std::int64_t row = 0; row < rows; ++row) {
    picture::Image image{.caption = sample(field, row),
                         .height = shown.size(1),
                         .width = shown.size(2),
                         .channels = shown.size(3),
                         .range = range};
    if (is_bytes) {
      const at::Tensor bytes = shown[row].contiguous();
      const std::uint8_t* const data = bytes.const_data_ptr<std::uint8_t>();
      image.pixels = std::vector<std::uint8_t>(data, data + bytes.numel());
    } else {
      image.pixels = numbers<float>(real[row]);
    }
    what.images.push_back(std::move(image));
  }
  return picture::images(what);
}

Picture planes(const SeenField& field) {
  const at::Tensor& values = field.values;
  if (values.size(1) >= kPictureSide && values.size(2) >= kPictureSide) return images(field, values.unsqueeze(3));
  if (values.size(1) < kPictureSide) return curves(field);
  std::vector<picture::Map> some;
  const std::int64_t rows = std::min(values.size(0), kMaps);
  for (std::int64_t row = 0; row < rows; ++row) some.push_back(map_of(values[row], sample(field, row)));
  return maps(field, std::move(some), first_of(rows, values.size(0), "rows"), axis_of(field, 0, "index"),
              axis_of(field, 1, "index"));
}

Picture of_shape(const SeenField& field) {
  const at::Tensor& values = field.values;
  switch (values.dim()) {
    case 1:
      return histogram(field);
    case 2:
      if (values.size(1) > (is_whole(values) ? 1 : kColumns) && (is_whole(values) || values.size(1) <= kShort)) {
        const std::string whole = with_commas(values.size(0)) + " rows, from " + sample(field, 0);
        return maps(field, {map_of(values, "")}, whole, {.label = "row of the batch"},
                    axis_of(field, 0, "position in the sample"));
      }
      return values.size(1) == 1 ? histogram(field) : values.size(1) <= kColumns ? column_histograms(field) : curves(field);
    case 3:
      return planes(field);
    case 4:
      if (values.scalar_type() == at::kByte && (values.size(3) == 1 || values.size(3) == 3)) return images(field, values);
      if (values.size(1) == 1 || values.size(1) == 3) return images(field, values.permute({0, 2, 3, 1}));
      return channel_maps(field);
    default:
      return middle_slices(field);
  }
}

}  // namespace

std::optional<Picture> picture_of(const SeenField& field) {
  constexpr std::int64_t kMostAxes = 5;
  if (field.values.dim() < 1 || field.values.dim() > kMostAxes || field.values.numel() == 0) return std::nullopt;
  try {
    return of_shape(field);
  } catch (const RecipeError&) {  // no value is finite, so there is nothing to draw
    return std::nullopt;
  }
}

std::string picture_rule() {
  return R"(
The kind of picture depends on the field's shape after the axis of rows. Complex numbers are drawn as magnitudes.
  []                        histogram over the rows
  [n]  whole numbers        map, a row for each sample
  [n]  up to 3 numbers      histograms, one for each column
  [n]  up to 8 numbers      map, a row for each sample
  [n]                       curves: a plot for each of the first samples
  [H,W] both 8 or more      images; [C,n] with C below 8: curves; otherwise maps
  [1,H,W], [3,H,W]          images, as are bytes of [H,W,1] and [H,W,3]
  [C,H,W]                   maps of the first channels
  [C,D,H,W]                 maps of the three slices through the middle
)";
}

}  // namespace millrace::cli
