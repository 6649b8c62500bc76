// Samples from PNG and JPEG files: a crop of each image, as bytes or normalised, optionally flipped, and the label of the file if
// there is one. For other augmentation see augment.h.
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
  std::int64_t height = 224;  // height of the crop; images are never resized, and an image smaller than the crop is an error
  std::int64_t width = 224;
  Pixels pixels = Pixels::rgb;
  bool random_crop = true;   // true: the place of the crop is drawn anew at each read; false: the crop is centred
  bool random_flip = false;  // true: half of the reads swap left and right
  // True: decodes a JPEG at 1/2, 1/4 or 1/8 of its size if the smaller image still covers the crop. The crop then shows more of
  // the image, with less work.
  bool reduce = false;
  // True: the field is f32 [channels, height, width] with (value / 255 - mean) / deviation; false: u8 [height, width, channels].
  bool normalise = true;
  std::array<float, 3> mean = {0, 0, 0};  // for each channel; gray images use the first value
  std::array<float, 3> deviation = {1, 1, 1};
};

// Sample i is file i. Its content depends only on the file and on the random numbers of the read. Throws DataError with the name
// of a file that is damaged or smaller than the crop, and ConfigError for a crop or a deviation that is not above 0.
class ImageSource final : public Source {
 public:
  ImageSource(std::vector<std::filesystem::path> files, ImageSamples samples);
  // Adds the field "label", i64 []: the number of the file's class.
  ImageSource(LabelledFiles files, ImageSamples samples);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] std::string read_as() const override;  // returns a text that is made from the headers of up to 1,000 files
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return field == "label" ? classes_ : std::vector<std::string>();
  }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;
  // A cache may keep crops, if nothing about them is random.
  [[nodiscard]] Keeps keeps() const override {
    return samples_.random_crop || samples_.random_flip ? Keeps::nothing : Keeps::rows;
  }

 private:
  void read_one(const std::filesystem::path& path, Philox draws, std::span<std::byte> out) const;

  std::vector<std::filesystem::path> files_;
  std::vector<std::int64_t> labels_;  // empty, or a label for each file
  std::vector<std::string> classes_;  // the names of the labels
  ImageSamples samples_;
  std::vector<Field> fields_;
  std::array<std::array<float, 256>, 3> normalised_{};  // for each channel, the normalised value of each byte
  std::string fingerprint_;
};

}  // namespace millrace::data
