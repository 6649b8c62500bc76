// Samples from NumPy files: the rows of .npy arrays, or .npz files with a sample in each.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "millrace/format/npy.h"

namespace millrace::data {

// A field of the samples of an NpySource.
struct NpyField {
  std::string name;
  std::filesystem::path path;
};

// Sample i is row i of each array, along the first axis. Rows are read by pread. An array in Fortran order, whose rows are
// scattered over the file, is loaded into memory instead. Throws DataError for arrays of different length or without an axis.
class NpySource final : public Source {
 public:
  explicit NpySource(std::vector<NpyField> arrays);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override;
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  [[nodiscard]] std::string describe(std::int64_t index) const override;  // returns a text such as "x.npy, label.npy row 7"

 private:
  struct Array {
    format::NpyFile file;
    std::vector<std::byte> loaded;  // the array's elements; used only for an array in Fortran order
  };
  std::vector<Array> arrays_;
  std::vector<Field> fields_;
  std::int64_t size_ = 0;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

// Sample i is file i. Its fields are the arrays `names`, or all arrays of the first file if `names` is empty. Throws DataError
// with the name of a file that lacks an array, or whose array has another shape or dtype than in the first file.
class NpzSource final : public Source {
 public:
  explicit NpzSource(std::vector<std::filesystem::path> files, const std::vector<std::string>& names = {});

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<Field> fields_;
  std::string fingerprint_;
};

}  // namespace millrace::data
