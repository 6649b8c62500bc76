// The files that become of one polarisation: a stretch of times each, filled with a few baselines at a time.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "recipes/cosmology/originals/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

// Bytes that a value of the choice takes while it is converted: as read, its state, and as it is stored.
inline constexpr std::int64_t kBytesOfAValue = 33;

// How many baselines fit into `memory` bytes at once, with all channels and times of `axes`: at least one.
[[nodiscard]] std::int64_t baselines_at_once(const Axes& axes, std::uint64_t memory);

// /vis (baselines, channels, times) of `vis`, and what `axes` says of its times from `begin` on, into a new file.
void write_part(const std::filesystem::path& path, const Axes& axes, std::int64_t begin, std::int64_t length,
                std::span<const std::byte> vis);

// Values of some baselines, as the file stores them: complex64, or complex128 where axes.wide.
[[nodiscard]] std::vector<std::byte> stored(const Visibilities& block, const Axes& axes, std::int64_t begin, std::int64_t length);

class Parts {
 public:
  // Files NAME-tNNNN.h5 in `folder` of `length` times each; times that fill none are left out. What does not come as one block
  // waits in files below `folder`, gone when this is.
  Parts(std::filesystem::path folder, std::string name, const Axes& axes, std::int64_t length);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  // The next baselines, all channels and times.
  void add(const Visibilities& block);
  // Once all baselines are there. Returns the number of files.
  std::int64_t write();

 private:
  [[nodiscard]] std::int64_t files() const { return axes_.shape()[2] / length_; }
  [[nodiscard]] std::filesystem::path waiting(std::int64_t file) const;

  std::filesystem::path folder_;
  std::string name_;
  const Axes& axes_;
  std::int64_t length_;
  std::vector<std::vector<std::byte>> whole_;  // of each file, when all came as one block
};

// "0012", as file names have it.
[[nodiscard]] std::string padded(std::int64_t number);

}  // namespace millrace::recipes::cosmology::uvh5
