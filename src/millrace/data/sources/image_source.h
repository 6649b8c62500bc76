// PNG and JPEG files as samples: a crop of each, optionally flipped, as bytes or normalised, with a label if there is one. Other
// augmentation: augment.h.
//
//   data::ImageSource(data::files_in("photos", {".png"}), {.height = 64, .width = 64})
//   data::ImageSource(data::labelled_files_in("photos"), {.height = 64, .width = 64})  // photos/cat/*.jpg, photos/dog/*.jpg
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/files/folder.h"
#include "millrace/data/files/image.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

struct ImageSamples {
  std::string field = "image";
  std::int64_t height = 224;  // of the crop; images are never resized, and one smaller than the crop is an error
  std::int64_t width = 224;
  Pixels pixels = Pixels::rgb;
  bool random_crop = true;   // drawn anew at each read; false: centred
  bool random_flip = false;  // swaps left and right in half of the reads
  // Decodes a JPEG at 1/2, 1/4 or 1/8 size if that still covers the crop: the crop then shows more of the image, for less work.
  bool reduce = false;
  // f32 [channels, height, width] of (value / 255 - mean) / deviation; false: u8 [height, width, channels].
  bool normalise = true;
  std::array<float, 3> mean = {0, 0, 0};  // per channel; gray uses the first
  std::array<float, 3> deviation = {1, 1, 1};
};

// Sample i is file i. Its content depends only on the file and the read's random stream. DataError naming the file if it is
// damaged or smaller than the crop; ConfigError for a crop or a deviation that is not above 0.
class ImageSource final : public Source {
 public:
  ImageSource(std::vector<std::filesystem::path> files, ImageSamples samples);
  // Adds a second field "label", i64 []: the number of the file's class.
  ImageSource(LabelledFiles files, ImageSamples samples);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] std::string read_as() const override;  // from the headers of up to 1,000 files
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;
  // Finished crops are kept if nothing about them is random.
  [[nodiscard]] Keeps keeps() const override {
    return samples_.random_crop || samples_.random_flip ? Keeps::nothing : Keeps::rows;
  }

 private:
  void read_one(const std::filesystem::path& path, Philox draws, std::span<std::byte> out) const;

  std::vector<std::filesystem::path> files_;
  std::vector<std::int64_t> labels_;  // empty, or one per file
  ImageSamples samples_;
  std::vector<Field> fields_;
  std::array<std::array<float, 256>, 3> normalised_{};  // the value of each byte, per channel
  std::string fingerprint_;
};

}  // namespace millrace::data
