// Writes the output files of a polarisation. Each file holds successive times; all files are filled together, with a few
// baselines at a time.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "recipes/cosmology/originals/uvh5_cube.h"

namespace millrace::recipes::cosmology::uvh5 {

// Bytes of memory for each selected value: the value as read, its state, and the value as stored.
inline constexpr std::int64_t kBytesOfAValue = 33;

// The number of baselines, with all channels and times of `axes`, that fit into `memory` bytes; at least 1.
[[nodiscard]] std::int64_t baselines_at_once(const Axes& axes, std::uint64_t memory);

// Writes a new file: `vis` as the data set /vis (baselines, channels, times), and the part of `axes` that belongs to the time
// stamps [begin, begin + length).
void write_part(const std::filesystem::path& path, const Axes& axes, std::int64_t begin, std::int64_t length,
                std::span<const std::byte> vis);

// The values of some baselines in the file's format: complex128 if axes.wide, else complex64.
[[nodiscard]] std::vector<std::byte> stored(const Visibilities& block, const Axes& axes, std::int64_t begin, std::int64_t length);

class Parts {
 public:
  // The files will be NAME-tNNNN.h5 in `folder`, each with `length` times; times that do not fill a file are left out. If the
  // values come in several blocks, they wait in temporary files below `folder`; the destructor removes these files.
  Parts(std::filesystem::path folder, std::string name, const Axes& axes, std::int64_t length);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  // Adds the next baselines, with all channels and times.
  void add(const Visibilities& block);
  // Called after all baselines were added. Writes the files and returns their number.
  std::int64_t write();

 private:
  [[nodiscard]] std::int64_t files() const { return axes_.shape()[2] / length_; }
  [[nodiscard]] std::filesystem::path waiting(std::int64_t file) const;

  std::filesystem::path folder_;
  std::string name_;
  const Axes& axes_;
  std::int64_t length_;
  std::vector<std::vector<std::byte>> whole_;  // the contents of each file, if all values came in a single block
};

// The number as in file names: "0012".
[[nodiscard]] std::string padded(std::int64_t number);

}  // namespace millrace::recipes::cosmology::uvh5
