// A file of volumes, NIfTI or NPZ: judged by its header, read whole, cut into crops. No ATen: readers call it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "millrace/base/field.h"

namespace millrace::recipes::autoencoder_3d {

inline constexpr std::array<const char*, 3> kVolumeEndings = {".npz", ".nii", ".nii.gz"};

// What a file's header says.
struct VolumeFile {
  std::filesystem::path path;
  std::string entry;                // of an NPZ file: the array's name
  bool is_archive = false;          // an NPZ file, told by its content; else NIfTI
  Shape shape;                      // depth, height and width of each of its volumes
  std::int64_t volumes = 1;         // 2: the low-count image, then the high-count label; 1: image and label are the same
  std::int64_t series = 1;          // volumes along the fourth axis of a NIfTI file: those behind the second are not used
  DType dtype = DType::f32;         // as stored
  double slope = 1, intercept = 0;  // value = stored * slope + intercept
  bool scaled = false;
  std::array<double, 3> spacing{};  // of a voxel along depth, height and width in mm; 0 = the file does not say
  std::string orientation;          // "RAS", of the axes x, y and z; "" of an NPZ file
  std::string read_as;              // what it says of itself, in words
};

// DataError: no file that can be read, no (2,D,H,W) array, no volume of three axes or a series of two and more, complex numbers.
[[nodiscard]] VolumeFile open_volume_file(const std::filesystem::path& path);

// A volume is kept in the dtype it is stored in; numbers of more than two bytes that are no f32, and f16, become f32, scaled.
[[nodiscard]] DType kept_dtype(const VolumeFile& file);
[[nodiscard]] std::size_t kept_bytes(const VolumeFile& file);  // of one volume

// The first `count` volumes, kept_bytes() each. DataError: what format and NiftiFile throw, a value that is NaN or infinite, a
// file that is not what open_volume_file() saw.
void read_volumes(const VolumeFile& file, std::int64_t count, std::span<std::byte> out);

// The block of `size` from `offset` of a kept volume, scaled; zeros beyond the volume's end.
void cut_volume(const VolumeFile& file, std::span<const std::byte> volume, const Shape& offset, const Shape& size,
                std::span<float> out);

// Percentiles 0 and 99.5 of a kept volume, scaled, as range_of() has them.
[[nodiscard]] std::array<float, 2> range_of_volume(const VolumeFile& file, std::span<const std::byte> volume);

}  // namespace millrace::recipes::autoencoder_3d
