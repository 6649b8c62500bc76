// A file of volumes, NIfTI or NPZ: checked by its header, read whole, cut into crops. Without ATen: readers call it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/field.h"

namespace millrace::recipes::autoencoder_3d {

inline constexpr std::array<const char*, 3> kVolumeEndings = {".npz", ".nii", ".nii.gz"};

// The content of a file's header.
struct VolumeFile {
  std::filesystem::path path;
  std::string entry;                // the array's name in an NPZ file
  bool is_archive = false;          // an NPZ file, recognised by its content; else NIfTI
  Shape shape;                      // depth, height and width of each of its volumes
  std::int64_t volumes = 1;         // 2: the low-count image, then the high-count label; 1: image and label are the same
  std::int64_t series = 1;          // volumes along the fourth axis of a NIfTI file; those after the second are not used
  DType dtype = DType::f32;         // as stored
  double slope = 1, intercept = 0;  // value = stored * slope + intercept
  bool scaled = false;
  std::array<double, 3> spacing{};  // voxel size along depth, height and width in mm; 0 = not in the file
  std::string orientation;          // "RAS", for the axes x, y and z; "" for an NPZ file
  std::string read_as;              // the file's description of itself, in words
  std::optional<Message> unusable;  // why it can't be used: read_volumes() throws it; all but `path` is then another file's
};

// DataError: the file can't be read; an NPZ file has no (2,D,H,W) array; a NIfTI file holds neither a volume of three axes nor a
// series of volumes; the numbers are complex.
[[nodiscard]] VolumeFile open_volume_file(const std::filesystem::path& path);

// The dtype in which a volume is kept: its stored dtype; f16 and types of more than two bytes other than f32 become f32, scaled.
[[nodiscard]] DType kept_dtype(const VolumeFile& file);
[[nodiscard]] std::size_t kept_bytes(const VolumeFile& file);  // of one volume

// The first `count` volumes, kept_bytes() each. DataError: errors of the format and of NiftiFile, a value that is NaN or
// infinite, a file that has changed since open_volume_file() or can't be used.
void read_volumes(const VolumeFile& file, std::int64_t count, std::span<std::byte> out);

// The block of `size` from `offset` of a kept volume, scaled; zeros beyond the volume's edge.
void cut_volume(const VolumeFile& file, std::span<const std::byte> volume, const Shape& offset, const Shape& size,
                std::span<float> out);

// Percentiles 0 and 99.5 of a kept volume, scaled, computed as in range_of().
[[nodiscard]] std::array<float, 2> range_of_volume(const VolumeFile& file, std::span<const std::byte> volume);

}  // namespace millrace::recipes::autoencoder_3d
