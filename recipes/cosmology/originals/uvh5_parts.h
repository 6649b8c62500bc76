// The output files of one polarisation: each holds successive times, and all are filled with a few baselines at a time.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "recipes/cosmology/originals/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

// Bytes per value of the choice during conversion: the value as read, its state, and the value as stored.
inline constexpr std::int64_t kBytesOfAValue = 33;

// Number of baselines, with all channels and times of `axes`, that fit into `memory` bytes at once; at least 1.
[[nodiscard]] std::int64_t baselines_at_once(const Axes& axes, std::uint64_t memory);

// Writes /vis (baselines, channels, times) of `vis`, and the data of `axes` about its times from `begin` on, into a new file.
void write_part(const std::filesystem::path& path, const Axes& axes, std::int64_t begin, std::int64_t length,
                std::span<const std::byte> vis);

// Values of some baselines in the file's format: complex64, or complex128 if axes.wide.
[[nodiscard]] std::vector<std::byte> stored(const Visibilities& block, const Axes& axes, std::int64_t begin, std::int64_t length);

class Parts {
 public:
  // Files NAME-tNNNN.h5 in `folder` of `length` times each; times that fill no file are left out. Values that do not come as one
  // block wait in files below `folder`, which this object removes.
  Parts(std::filesystem::path folder, std::string name, const Axes& axes, std::int64_t length);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  // Adds the next baselines, with all channels and times.
  void add(const Visibilities& block);
  // Call once all baselines are added. Returns the number of files.
  std::int64_t write();

 private:
  [[nodiscard]] std::int64_t files() const { return axes_.shape()[2] / length_; }
  [[nodiscard]] std::filesystem::path waiting(std::int64_t file) const;

  std::filesystem::path folder_;
  std::string name_;
  const Axes& axes_;
  std::int64_t length_;
  std::vector<std::vector<std::byte>> whole_;  // for each file, if all came as one block
};

// "0012", as in file names.
[[nodiscard]] std::string padded(std::int64_t number);

}  // namespace millrace::recipes::cosmology::uvh5
