#include "millrace/data/sources/image_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/data/sources/array_ops.h"
#include "millrace/data/sources/detail/file_list.h"

namespace millrace::data {
namespace {

// Turns pixels into a plane of floats for each channel, mirrored if `flip` is true.
template <std::size_t kChannels>
void normalise(const std::array<std::array<float, 256>, 3>& tables, std::span<const std::byte> pixels, std::size_t width,
               bool flip, float* out) {
  const std::size_t plane = pixels.size() / kChannels;
  for (std::size_t row = 0; row < plane; row += width) {
    const std::byte* from = pixels.data() + row * kChannels;
    for (std::size_t x = 0; x < width; ++x, from += kChannels) {
      const std::size_t to = row + (flip ? width - 1 - x : x);
      for (std::size_t c = 0; c < kChannels; ++c) out[c * plane + to] = tables[c][std::to_integer<std::size_t>(from[c])];
    }
  }
}

}  // namespace

ImageSource::ImageSource(std::vector<std::filesystem::path> files, ImageSamples samples)
    : files_(std::move(files)), samples_(std::move(samples)) {
  const bool positive = std::all_of(samples_.deviation.begin(), samples_.deviation.end(), [](float value) { return value > 0; });
  if (samples_.height < 1 || samples_.width < 1 || samples_.height > 1 << 20 || samples_.width > 1 << 20 || !positive) {
    throw ConfigError(Message{.what = "the crop is " + std::to_string(samples_.height) + " x " + std::to_string(samples_.width) +
                                      " pixels" + (positive ? "" : ", and a deviation is 0 or negative"),
                              .where = "height, width, deviation",
                              .next = "set sizes of 1 to 1048576 and deviations above 0"});
  }
  const auto channels = static_cast<std::int64_t>(samples_.pixels);
  const Field& image = fields_.emplace_back(Field{
      samples_.field, samples_.normalise ? DType::f32 : DType::u8,
      samples_.normalise ? Shape{channels, samples_.height, samples_.width} : Shape{samples_.height, samples_.width, channels}});
  for (std::size_t c = 0; c < 3; ++c) normalised_[c] = detail::normalised_bytes(samples_.mean[c], samples_.deviation[c]);
  fingerprint_ = "images " + detail::count_of_files(files_, "images") + ' ' + std::string(name_of(image.dtype)) +
                 to_text(image.shape) + (samples_.random_crop ? " random" : " middle") +
                 (samples_.random_flip ? " flipped" : "") + (samples_.reduce ? " reduced" : "");
  for (std::size_t c = 0; samples_.normalise && c < static_cast<std::size_t>(channels); ++c) {
    fingerprint_ += ' ' + lasting(samples_.mean[c], 9) + '/' + lasting(samples_.deviation[c], 9);
  }
}

ImageSource::ImageSource(LabelledFiles files, ImageSamples samples) : ImageSource(std::move(files.files), std::move(samples)) {
  MR_CHECK(files.labels.size() == files_.size(), "each file must have a label");
  labels_ = std::move(files.labels);
  classes_ = std::move(files.classes);
  fields_.push_back({"label", DType::i64, {}});
  fingerprint_ += " labels crc32c " + std::to_string(crc32c(std::as_bytes(std::span(labels_))));
}

void ImageSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  const std::size_t row_bytes = fields_[0].bytes();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto file = static_cast<std::size_t>(indices[i]);
    // If nothing is random, `random` must not be used. A cache may keep such rows, and the loader rejects kept rows for which
    // numbers were drawn.
    const Philox draws = keeps() == Keeps::rows ? Philox(0) : random(i);
    read_one(files_[file], draws, {rows.row(0, i, row_bytes), row_bytes});
    if (!labels_.empty()) std::memcpy(rows.row(1, i, sizeof(std::int64_t)), &labels_[file], sizeof(std::int64_t));
  }
}

std::string ImageSource::read_as() const {
  constexpr std::int64_t kMost = 1000;
  return data::read_as(look_at_pictures(files_, kMost));
}

void ImageSource::will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept {
  for (const std::int64_t index : indices) will_need_file(files_[static_cast<std::size_t>(index)]);
}

void ImageSource::read_one(const std::filesystem::path& path, Philox draws, std::span<std::byte> out) const {
  Image image(path);
  if (image.size().height < samples_.height || image.size().width < samples_.width) {
    throw DataError({.what = "the image has " + std::to_string(image.size().height) + " x " + std::to_string(image.size().width) +
                             " pixels, the crop needs " + std::to_string(samples_.height) + " x " +
                             std::to_string(samples_.width),
                     .where = path.string(),
                     .next = "leave the image out, or take a smaller crop"});
  }
  const int reduction = samples_.reduce ? image.largest_reduction(samples_.height, samples_.width) : 1;
  const PictureSize size = format::reduced(image.size(), reduction);
  PicturePart part{.top = (size.height - samples_.height) / 2,
                   .left = (size.width - samples_.width) / 2,
                   .height = samples_.height,
                   .width = samples_.width};
  // Always draws three numbers, so that switching an option on does not change the numbers that other options use.
  const std::uint64_t top = draws.below(static_cast<std::uint64_t>(size.height - samples_.height) + 1);
  const std::uint64_t left = draws.below(static_cast<std::uint64_t>(size.width - samples_.width) + 1);
  const bool flip = draws.below(2) == 1 && samples_.random_flip;
  if (samples_.random_crop) {
    part.top = static_cast<std::int64_t>(top);
    part.left = static_cast<std::int64_t>(left);
  }
  const auto channels = static_cast<std::size_t>(samples_.pixels);
  const auto width = static_cast<std::size_t>(samples_.width);
  if (!samples_.normalise) {
    image.decode(samples_.pixels, reduction, part, out);
    if (flip) detail::reverse_axis({out.size() / (width * channels), width, channels}, out.data(), out.data());
    return;
  }
  thread_local std::vector<std::byte> kept;
  const std::size_t bytes = out.size() / sizeof(float);
  if (kept.size() < bytes) kept.resize(bytes);
  const std::span<std::byte> pixels = std::span(kept).first(bytes);
  image.decode(samples_.pixels, reduction, part, pixels);
  // The cast is safe: a slot begins at a multiple of 64 bytes, and a row consists of whole floats.
  auto* const floats = reinterpret_cast<float*>(out.data());
  channels == 1 ? normalise<1>(normalised_, pixels, width, flip, floats) : normalise<3>(normalised_, pixels, width, flip, floats);
}

}  // namespace millrace::data
