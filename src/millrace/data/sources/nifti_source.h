// Samples from NIfTI files: whole volumes, or a block of each volume.
#pragma once

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/files/nifti.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

struct NiftiSamples {
  std::string field = "volume";
  Shape patch = {};       // size of the block, slowest axis first; empty: whole volumes, all of the same shape
  bool random = true;     // true: the place of the block is drawn anew at each read; false: the block is centred
  bool as_float = false;  // true: f32 values, scaled by slope and intercept; false: the stored numbers, for which all files must
                          // have one dtype
};

// Sample i is file i. The constructor takes dtype and shape from the first file; other files are checked when they are read.
// Throws DataError with the name of a file that does not match.
class NiftiSource final : public Source {
 public:
  NiftiSource(std::vector<std::filesystem::path> files, NiftiSamples samples);

  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(files_); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return files_[static_cast<std::size_t>(index)].string();
  }
  [[nodiscard]] std::string read_as() const override { return read_as_; }  // describes the first file and how others differ
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;
  // A part is a whole volume as it is stored; the place of the block is drawn afterwards.
  [[nodiscard]] Keeps keeps() const override { return Keeps::parts; }
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override;
  void load(std::int64_t part, std::span<std::byte> bytes) const override;
  [[nodiscard]] std::vector<std::string> part_texts() const override;
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override;

 private:
  void judge(const std::filesystem::path& path, const NiftiHeader& header) const;
  [[nodiscard]] Shape place(const Shape& volume, Philox draws) const;

  std::vector<std::filesystem::path> files_;
  NiftiSamples samples_;
  Field field_;
  std::size_t first_bytes_ = 0;                          // bytes of the first file's part
  mutable std::vector<std::atomic<std::size_t>> sizes_;  // bytes of each part; 0 = not read yet
  std::string fingerprint_, read_as_;
};

}  // namespace millrace::data
