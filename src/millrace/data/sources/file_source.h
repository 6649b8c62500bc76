// Samples from files, a sample in each: NumPy arrays, sounds and pictures. The name of a file's folder may be its label.
//
//   data::FileSource(data::labelled_files_in("clips", {".npy"}), {.field = "wave"})  // clips/owl/*.npy, clips/wren/*.npy
//   data::FileSource(data::files_in("scans", {".npz"}))                              // a field for each array
//
// For crops, noise and other augmentation see augment.h. For pictures of different sizes see image_source.h, which crops them.
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
  std::string field = "x";      // the field's name if the file has one array; arrays of a .npz have their own names
  Pixels pixels = Pixels::rgb;  // the channels that pictures get: gray or colour
};

// Sample i is file i. How it is read depends on the ending of its name:
//   .npy                the array as it is stored
//   .npz                each of its arrays, under its own name
//   .wav                f32 [channels, frames], as WavFile reads it
//   .png, .jpg, .jpeg   u8 [channels, height, width]; data::normalise() makes floats of it
// All files must have the fields, dtypes and shapes of the first file; sounds must also have the first file's sample rate.
// Throws a DataError that names a file that differs or is damaged, or has another ending. A cache may keep the rows.
class FileSource final : public Source {
 public:
  explicit FileSource(std::vector<std::filesystem::path> files, FileSamples samples = {});
  // Adds the field "label", i64 []: the number of the file's class.
  explicit FileSource(LabelledFiles files, FileSamples samples = {});

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] std::string read_as() const override;  // such as "806 files as the first: wave f32 [1,3200], 16,000 Hz"
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return field == "label" ? classes_ : std::vector<std::string>();
  }
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<std::int64_t> labels_;  // empty, or a label for each file
  std::vector<std::string> classes_;  // the names of the labels
  FileSamples samples_;
  std::vector<Field> fields_;
  std::int64_t rate_ = 0;  // sample rate of the first file, if it is a sound
  std::string fingerprint_;
};

}  // namespace millrace::data
