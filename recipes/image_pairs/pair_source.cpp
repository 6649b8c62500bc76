#include "recipes/image_pairs/pair_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/data/files/image.h"
#include "millrace/data/files/image_resize.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::int64_t kChannels = 3;

void read_into(const std::filesystem::path& file, std::int64_t side, Resize resize, std::span<std::byte> out) {
  constexpr std::int64_t kLeast = 16;
  data::Image image(file);
  const data::PictureSize& size = image.size();
  if (resize == Resize::clip && std::min(size.height, size.width) >= kLeast) {
    const data::ClipCrop crop = data::clip_crop(size, side);
    const data::PicturePart seen = data::seen_by(crop, size);
    thread_local std::vector<std::byte> pixels;
    pixels.resize(static_cast<std::size_t>(seen.height * seen.width * kChannels));
    image.decode(data::Pixels::rgb, 1, seen, pixels);
    data::resize_bicubic(size, seen, pixels, data::Pixels::rgb, crop.height, crop.width, crop.middle, out);
    return;
  }
  if (size.height < side || size.width < side) {
    // True for an image that is too small even for recipe.resize=clip.
    const bool is_tiny = std::min(size.height, size.width) < kLeast;
    throw DataError({"the image has " + std::to_string(size.height) + " x " + std::to_string(size.width) + " pixels, but " +
                         (is_tiny ? "the minimum is " + std::to_string(kLeast) + " x " + std::to_string(kLeast)
                                  : "its middle " + std::to_string(side) + " x " + std::to_string(side) + " is needed"),
                     file.string(),
                     std::string("leave the image out") + (is_tiny ? "" : ", set recipe.image_size, or recipe.resize=clip")});
  }
  image.decode(data::Pixels::rgb, 1,
               {.top = (size.height - side) / 2, .left = (size.width - side) / 2, .height = side, .width = side}, out);
}

class PairSource final : public data::Source {
 public:
  PairSource(const PairFiles& files, const std::vector<Pair>& pairs, const RecipeConfig& recipe)
      : pairs_(pairs), side_(recipe.image_size), resize_(recipe.resize) {
    for (const ImageFile& image : files.images) paths_.push_back(image.path);
    fields_ = {{"images", DType::u8, {2, side_, side_, kChannels}}, {"label", DType::i64, {}}};
  }

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(pairs_); }
  [[nodiscard]] std::string fingerprint() const override {
    std::uint32_t sum = 0;
    for (const Pair& pair : pairs_) {
      const std::array<std::int64_t, 3> numbers = {pair.first, pair.second, static_cast<std::int64_t>(pair.label)};
      sum = crc32c(std::as_bytes(std::span(numbers)), sum);
    }
    return "pairs " + std::to_string(pairs_.size()) + " crc32c " + std::to_string(sum) + " of " + std::to_string(paths_.size()) +
           " images, " + std::to_string(side_) + (resize_ == Resize::clip ? " px, short side resized" : " px, middle");
  }
  [[nodiscard]] std::vector<data::FileStamp> stamps() const override { return data::stamps_of(paths_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    const Pair& of = pair(index);
    return path(of.first).filename().string() + " and " + path(of.second).filename().string();
  }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const data::ReadRandom&) const noexcept override {
    for (const std::int64_t index : indices) {
      will_need_file(path(pair(index).first));
      will_need_file(path(pair(index).second));
    }
  }

  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom&) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const Pair& of = pair(indices[i]);
      std::byte* const images = rows.row(0, i, fields_[0].bytes());
      load(of.first, {images, image_bytes()});
      load(of.second, {images + image_bytes(), image_bytes()});
      write_label(of, rows, i);
    }
  }

  [[nodiscard]] data::Keeps keeps() const override { return data::Keeps::parts; }
  [[nodiscard]] std::int64_t parts() const override { return std::ssize(paths_); }
  [[nodiscard]] std::size_t parts_per_sample() const override { return 2; }
  void parts_of(std::int64_t index, const data::ReadRandom&, std::span<std::int64_t> parts) const override {
    parts[0] = pair(index).first;
    parts[1] = pair(index).second;
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return image_bytes(); }
  void load(std::int64_t part, std::span<std::byte> bytes) const override { read_into(path(part), side_, resize_, bytes); }
  [[nodiscard]] std::vector<std::string> part_texts() const override {
    std::vector<std::string> texts;
    const std::vector<data::FileStamp> files = stamps();
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::string text = data::content_text(files[i]);
      if (!text.empty()) {
        text += (resize_ == Resize::clip ? " clip " : " middle ") + std::to_string(side_);
        // The key of a rotated image says that it is rotated, because earlier versions cached such an image unrotated.
        if (const int orientation = data::signs_of(paths_[i]).orientation; orientation != 1)
          text += " turned " + std::to_string(orientation);
      }
      texts.push_back(std::move(text));
    }
    return texts;
  }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, data::Rows rows,
              const data::ReadRandom&) const override {
    std::byte* const images = rows.row(0, 0, fields_[0].bytes());
    std::memcpy(images, parts[0].data(), image_bytes());
    std::memcpy(images + image_bytes(), parts[1].data(), image_bytes());
    write_label(pair(index), rows, 0);
  }

 private:
  [[nodiscard]] const Pair& pair(std::int64_t index) const { return pairs_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const std::filesystem::path& path(std::int64_t image) const { return paths_[static_cast<std::size_t>(image)]; }
  [[nodiscard]] std::size_t image_bytes() const { return static_cast<std::size_t>(side_ * side_ * kChannels); }
  void write_label(const Pair& pair, data::Rows rows, std::size_t row) const {
    const auto label = static_cast<std::int64_t>(pair.label);
    std::memcpy(rows.row(1, row, sizeof(label)), &label, sizeof(label));
  }

  std::vector<Pair> pairs_;
  std::vector<std::filesystem::path> paths_;
  std::int64_t side_;
  Resize resize_;
  std::vector<Field> fields_;
};

}  // namespace

std::vector<std::uint8_t> read_image(const std::filesystem::path& file, const RecipeConfig& recipe) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(recipe.image_size * recipe.image_size * kChannels));
  read_into(file, recipe.image_size, recipe.resize, std::as_writable_bytes(std::span(pixels)));
  return pixels;
}

data::PicturesSeen look_at_heads(const std::vector<ImageFile>& images) {
  std::vector<std::filesystem::path> paths;
  paths.reserve(images.size());
  for (const ImageFile& image : images) paths.push_back(image.path);
  return data::look_at_pictures(paths, std::ssize(paths));
}

std::vector<std::string> sign_notices(const data::PicturesSeen& seen) {
  std::vector<std::string> notices;
  const auto add = [&](const data::PicturesSeen::Some& some, const std::string& what, const std::string& then) {
    if (some.count > 0)
      notices.push_back(what + with_commas(some.count) + " of " + with_commas(seen.all) + " images " + then +
                        " (the first: " + quoted(some.first.filename().string()) + ")");
  };
  add(seen.transparent, "alpha is dropped: ", "have an alpha channel or a transparent colour; their colours are used unchanged");
  add(seen.deep, "16 bits become 8: ", "have 16 bits per channel; the upper 8 are used, so that values below 256 become black");
  add(seen.turned, "rotated upright: ", "are stored rotated, as their orientation (EXIF, XMP) says");
  return notices;
}

std::shared_ptr<const data::Source> pair_source(const PairFiles& files, Split split, const RecipeConfig& recipe) {
  return std::make_shared<PairSource>(files, split == Split::train ? files.train : files.validation, recipe);
}

}  // namespace millrace::recipes::image_pairs
