// The samples of a sky. y comes from a signal file; x is y plus a foreground file that is drawn for y. Both are cut to
// recipe.ra_keep.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

struct SkyOptions {
  std::string dataset = "/vis";
  std::int64_t ra_keep = 0;
  bool rolls = false;  // true: rolls x and y along RA by the same random offset
};

// Reads the samples. The fields "x" and "y" are complex64 (baselines, frequencies, ra_keep). The foreground of a sample is drawn
// uniformly, with replacement, by the random generator of (seed, epoch, position). So the draw does not depend on the number of
// readers, and every validation has the same foregrounds.
class SkySource final : public data::Source {
 public:
  SkySource(SkyFiles files, const Shape& shape, SkyOptions options);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(files_.signal.size()); }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  // Names such as "signal/a.h5" and "foreground/b.h5", whatever the two folders are called.
  [[nodiscard]] std::vector<data::FileStamp> stamps() const override;
  [[nodiscard]] std::string describe(std::int64_t index) const override;
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const data::ReadRandom& random) const noexcept override;
  // A sample has two parts (what a cache keeps): the signal file and the foreground file, both cut, as complex64. A foreground
  // file is part of many samples.
  [[nodiscard]] data::Keeps keeps() const override { return data::Keeps::parts; }
  [[nodiscard]] std::int64_t parts() const override;
  [[nodiscard]] std::size_t parts_per_sample() const override { return 2; }
  void parts_of(std::int64_t index, const data::ReadRandom& random, std::span<std::int64_t> parts) const override;
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return fields_[0].bytes(); }
  void load(std::int64_t part, std::span<std::byte> bytes) const override;
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, data::Rows rows,
              const data::ReadRandom& random) const override;

 private:
  [[nodiscard]] const hdf5::File& file_of(std::int64_t part) const;
  [[nodiscard]] std::int64_t roll_of(const data::ReadRandom& random, std::size_t i) const;
  [[nodiscard]] std::int64_t rows_of_file() const { return fields_[0].shape[0] * fields_[0].shape[1]; }
  void read_file(const hdf5::File& file, std::int64_t roll, bool adds, float* out) const;
  [[noreturn]] void refuse_value(const hdf5::File& file, std::int64_t place, double value) const;

  SkyFiles files_;
  SkyOptions options_;
  std::vector<Field> fields_;
  std::string fingerprint_;
};

}  // namespace millrace::recipes::cosmology
