#include "millrace/data/files/image_resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/data/files/detail/resize_loops.h"

namespace millrace::data {
namespace {

using detail::ResizeAxis;
using detail::Taps;

constexpr double kSupport = 2;

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

Taps taps_at(std::int64_t from, std::int64_t to, std::int64_t at) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), support = kSupport * std::max(scale, 1.0);
  const double centre = (static_cast<double>(at) + 0.5) * scale;
  const auto first = static_cast<std::int64_t>(std::floor(std::max(centre - support + 0.5, 0.0)));
  const auto end = std::min(static_cast<std::int64_t>(std::floor(centre + support + 0.5)), from);
  return {first, end - first};
}

// Returns the taps and weights of the new pixels begin, begin + 1, … along an axis.
ResizeAxis axis_of(std::int64_t from, std::int64_t to, std::int64_t begin, std::int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), narrowed = 1 / std::max(scale, 1.0);
  ResizeAxis axis;
  axis.most = static_cast<std::size_t>(std::ceil(kSupport * std::max(scale, 1.0))) * 2 + 1;
  axis.weights.resize(axis.most * static_cast<std::size_t>(count));
  std::vector<double> raw(axis.most);
  for (std::int64_t i = 0; i < count; ++i) {
    const Taps taps = axis.taps.emplace_back(taps_at(from, to, begin + i));
    const double centre = (static_cast<double>(begin + i) + 0.5) * scale;
    double sum = 0;
    for (std::int64_t k = 0; k < taps.count; ++k) {
      double& weight = raw[static_cast<std::size_t>(k)];
      weight = cubic((static_cast<double>(k + taps.first) - centre + 0.5) * narrowed);
      sum += weight;
    }
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const double share = raw[static_cast<std::size_t>(k)] / sum * (1 << detail::kWeightBits);
      axis.weights[static_cast<std::size_t>(i) * axis.most + static_cast<std::size_t>(k)] =
          static_cast<std::int32_t>(std::lround(share));
    }
  }
  return axis;
}

}  // namespace

void resize_bicubic(const format::PictureSize& from, const format::PicturePart& have, std::span<const std::byte> pixels,
                    format::Pixels channels, std::int64_t height, std::int64_t width, const format::PicturePart& part,
                    std::span<std::byte> out) {
  const auto depth = static_cast<std::size_t>(channels);
  MR_CHECK(format::lies_in(have, from) && pixels.size() == static_cast<std::size_t>(have.height * have.width) * depth,
           "the pixels must be a whole part of the old image");
  MR_CHECK(format::lies_in(part, {.height = height, .width = width}), "the part must lie inside the resized image");
  MR_CHECK(out.size() == static_cast<std::size_t>(part.height * part.width) * depth,
           "the memory for the part must have the part's size");
  ResizeAxis across = axis_of(from.width, width, part.left, part.width);
  const ResizeAxis down = axis_of(from.height, height, part.top, part.height);
  const auto first_of = [](const ResizeAxis& axis) { return axis.taps.front().first; };
  const auto end_of = [](const ResizeAxis& axis) { return axis.taps.back().first + axis.taps.back().count; };
  MR_CHECK(first_of(across) >= have.left && end_of(across) <= have.left + have.width && first_of(down) >= have.top &&
               end_of(down) <= have.top + have.height,
           "the bytes must hold all pixels that the part depends on");
  for (Taps& taps : across.taps) taps.first -= have.left;
  const std::int64_t first = first_of(down);
  const std::int64_t rows = end_of(down) - first;
  const std::size_t row_bytes = static_cast<std::size_t>(have.width) * depth,
                    out_bytes = static_cast<std::size_t>(part.width) * depth,
                    pitch = (out_bytes + detail::kColumnBlock - 1) / detail::kColumnBlock * detail::kColumnBlock;
  thread_local std::vector<std::byte> narrow;
  narrow.resize(static_cast<std::size_t>(rows) * pitch);
  const std::byte* const begin = pixels.data() + static_cast<std::size_t>(first - have.top) * row_bytes;
  detail::resize_rows(begin, row_bytes, row_bytes, rows, depth, across, narrow.data(), pitch);
  detail::resize_columns(narrow.data(), pitch, first, out_bytes, down, out.data(), out_bytes);
}

ClipCrop clip_crop(const format::PictureSize& from, std::int64_t side) {
  const auto long_side = [&](std::int64_t of, std::int64_t beside) {
    return static_cast<std::int64_t>(static_cast<double>(side) * static_cast<double>(of) / static_cast<double>(beside));
  };
  ClipCrop crop{.height = side, .width = side, .middle = {}};
  if (from.height > from.width) crop.height = std::max(long_side(from.height, from.width), side);
  if (from.width > from.height) crop.width = std::max(long_side(from.width, from.height), side);
  crop.middle = {.top = (crop.height - side) / 2, .left = (crop.width - side) / 2, .height = side, .width = side};
  return crop;
}

format::PicturePart seen_by(const ClipCrop& crop, const format::PictureSize& from) {
  const format::PicturePart& middle = crop.middle;
  const Taps top = taps_at(from.height, crop.height, middle.top);
  const Taps bottom = taps_at(from.height, crop.height, middle.top + middle.height - 1);
  const Taps left = taps_at(from.width, crop.width, middle.left);
  const Taps right = taps_at(from.width, crop.width, middle.left + middle.width - 1);
  return {.top = top.first,
          .left = left.first,
          .height = bottom.first + bottom.count - top.first,
          .width = right.first + right.count - left.first};
}

}  // namespace millrace::data
