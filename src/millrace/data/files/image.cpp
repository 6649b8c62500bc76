#include "millrace/data/files/image.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/format/png.h"

namespace millrace::data {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  throw DataError({"neither a PNG nor a JPEG file", path.string(), "use an intact PNG or JPEG file"});
}

}  // namespace

Image::Image(std::filesystem::path path) : path_(std::move(path)) {
  thread_local std::vector<std::byte> kept;
  bytes_ = InputFile(path_).read_all(kept);
  const format::PictureFile file{bytes_, path_};
  if (format::is_png(bytes_)) {
    stored_ = format::png_size(file, bytes_.size());
  } else if (format::is_jpeg(bytes_)) {
    jpeg_ = std::make_unique<format::JpegPicture>(file, bytes_.size());
    stored_ = jpeg_->size();
  } else {
    refuse(path_);
  }
  signs_ = format::picture_signs([this](std::uint64_t offset, std::span<std::byte> out) {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return false;
    std::ranges::copy(bytes_.subspan(offset, out.size()), out.begin());
    return true;
  });
  size_ = format::upright(stored_, signs_.orientation);
}

int Image::largest_reduction(std::int64_t height, std::int64_t width) const noexcept {
  return jpeg_ ? format::largest_reduction(size_, height, width) : 1;
}

void Image::decode(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out) {
  if (signs_.orientation == 1) return decode_stored(pixels, reduction, part, out);
  MR_CHECK(format::lies_in(part, format::reduced(size_, reduction)), "a part must lie inside the picture");
  thread_local std::vector<std::byte> kept;
  if (kept.size() < out.size()) kept.resize(out.size());
  const std::span<std::byte> stored = std::span(kept).first(out.size());
  const PicturePart from = format::stored_part(part, format::reduced(stored_, reduction), signs_.orientation);
  decode_stored(pixels, reduction, from, stored);
  format::turn_upright(stored, part, signs_.orientation, static_cast<std::size_t>(pixels), out);
}

void Image::decode_stored(Pixels pixels, int reduction, const PicturePart& part, std::span<std::byte> out) {
  if (jpeg_) return jpeg_->decode(pixels, reduction, part, out);
  MR_CHECK(reduction == 1 && format::lies_in(part, stored_), "a part must lie inside the picture, and a PNG can't be reduced");
  const auto channels = static_cast<std::size_t>(pixels);
  const format::PictureFile file{bytes_, path_};
  if (part.height == stored_.height && part.width == stored_.width) return format::decode_png(file, pixels, out);
  thread_local std::vector<std::byte> kept;
  const std::size_t pitch = static_cast<std::size_t>(stored_.width) * channels;
  const std::size_t bytes = static_cast<std::size_t>(stored_.height) * pitch;
  if (kept.size() < bytes) kept.resize(bytes);
  format::decode_png(file, pixels, std::span(kept).first(bytes));
  const std::size_t row_bytes = static_cast<std::size_t>(part.width) * channels;
  MR_CHECK(out.size() == static_cast<std::size_t>(part.height) * row_bytes, "the memory for a part must have the part's size");
  const std::byte* from =
      kept.data() + static_cast<std::size_t>(part.top) * pitch + static_cast<std::size_t>(part.left) * channels;
  for (std::size_t at = 0; at < out.size(); at += row_bytes, from += pitch) std::memcpy(out.data() + at, from, row_bytes);
}

format::PictureSigns signs_of(const std::filesystem::path& path) {
  try {
    const InputFile file(path);
    return format::picture_signs([&](std::uint64_t offset, std::span<std::byte> out) {
      if (offset > file.size() || out.size() > file.size() - offset) return false;
      file.read(offset, out);
      return true;
    });
  } catch (const DataError&) {
    return {};
  }
}

PicturesSeen look_at_pictures(std::span<const std::filesystem::path> files, std::int64_t most) {
  PicturesSeen seen{.all = std::ssize(files)};
  seen.looked_at = std::min(seen.all, most);
  for (std::int64_t i = 0; i < seen.looked_at; ++i) {
    const std::filesystem::path& file = files[static_cast<std::size_t>(i * seen.all / seen.looked_at)];
    const format::PictureSigns signs = signs_of(file);
    const auto add = [&](bool is_so, PicturesSeen::Some& some) {
      if (is_so && some.count++ == 0) some.first = file;
    };
    add(signs.alpha, seen.transparent);
    add(signs.bits == 16, seen.deep);
    add(signs.orientation != 1, seen.turned);
    if (signs.height == 0 || signs.width == 0) continue;
    const PictureSize size = format::upright({.height = signs.height, .width = signs.width}, signs.orientation);
    const bool is_first = seen.greatest.height == 0;
    seen.least.height = is_first ? size.height : std::min(seen.least.height, size.height);
    seen.least.width = is_first ? size.width : std::min(seen.least.width, size.width);
    seen.greatest.height = std::max(seen.greatest.height, size.height);
    seen.greatest.width = std::max(seen.greatest.width, size.width);
  }
  return seen;
}

std::string read_as(const PicturesSeen& seen) {
  const auto range = [](std::int64_t least, std::int64_t most) {
    return std::to_string(least) + (most > least ? " to " + std::to_string(most) : "");
  };
  std::string text = with_commas(seen.all) + (seen.all == 1 ? " picture" : " pictures");
  if (seen.greatest.height > 0)
    text += " of " + range(seen.least.width, seen.greatest.width) + " x " + range(seen.least.height, seen.greatest.height) +
            " pixels (width x height)";
  if (seen.turned.count > 0) text += ", " + with_commas(seen.turned.count) + " rotated upright as EXIF says";
  if (seen.transparent.count > 0) text += ", " + with_commas(seen.transparent.count) + " with transparency, which is dropped";
  if (seen.deep.count > 0) text += ", " + with_commas(seen.deep.count) + " of 16 bits, of which the upper 8 are used";
  return text + (seen.looked_at < seen.all ? "; from the headers of " + with_commas(seen.looked_at) + " of them" : "");
}

}  // namespace millrace::data
