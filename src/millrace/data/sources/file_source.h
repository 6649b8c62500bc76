// One file per sample: NumPy arrays, sounds and pictures, with the number of their folder as label.
//
//   data::FileSource(data::labelled_files_in("clips", {".npy"}), {.field = "wave"})  // clips/owl/*.npy, clips/wren/*.npy
//   data::FileSource(data::files_in("scans", {".npz"}))                              // a field for each array
//
// Crops, noise and other augmentation: augment.h. Pictures of different sizes: image_source.h, which crops them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/files/folder.h"
#include "millrace/data/files/image.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

struct FileSamples {
  std::string field = "x";      // the name of the array; arrays of a .npz have their own
  Pixels pixels = Pixels::rgb;  // of pictures
};

// Sample i is file i, read by the ending of its name:
//   .npy                the array as it is stored
//   .npz                each of its arrays, under its own name
//   .wav                f32 [channels, frames], as WavFile reads it
//   .png, .jpg, .jpeg   u8 [channels, height, width]; data::normalise() makes floats of it
// All files have the fields, dtypes and shapes of the first, and sounds its rate: DataError names a file that differs or is
// damaged. Rows may be cached. DataError also for an unknown ending.
class FileSource final : public Source {
 public:
  explicit FileSource(std::vector<std::filesystem::path> files, FileSamples samples = {});
  // With a further field "label", i64 []: the number of the file's class.
  explicit FileSource(LabelledFiles files, FileSamples samples = {});

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] std::string read_as() const override;  // "806 files as the first: wave f32 [1,3200], 16,000 Hz"
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<std::int64_t> labels_;  // empty, or one per file
  FileSamples samples_;
  std::vector<Field> fields_;
  std::int64_t rate_ = 0;  // of the first file, if it is a sound
  std::string fingerprint_;
};

}  // namespace millrace::data
