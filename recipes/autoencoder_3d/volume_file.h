// Reads files of volumes, NIfTI or NPZ: checks their headers, reads whole volumes and cuts crops. Does not use ATen, because
// reader threads call it.
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

// A file, as its header describes it.
struct VolumeFile {
  std::filesystem::path path;
  std::string entry;                // name of the array in an NPZ file
  bool is_archive = false;          // true: an NPZ file, which is recognised by its content; false: NIfTI
  Shape shape;                      // depth, height and width of a volume
  std::int64_t volumes = 1;         // 2: the low-count image, then the high-count label; 1: image and label are the same volume
  std::int64_t series = 1;          // number of volumes along the fourth axis of a NIfTI file; only the first two are used
  DType dtype = DType::f32;         // dtype of the stored numbers
  double slope = 1, intercept = 0;  // value = stored * slope + intercept
  bool scaled = false;
  std::array<double, 3> spacing{};  // size of a voxel along depth, height and width, in mm; 0 = the file does not say
  std::string orientation;          // directions of the axes x, y and z, such as "RAS"; "" for an NPZ file
  std::string read_as;              // how the file is read, in words
  std::optional<Message> unusable;  // why the file can't be used; read_volumes() throws this message. All members but `path` are
                                    // then copies from another file
};

// Reads the header of a file. Throws DataError if the file can't be read, if an NPZ file has no (2,D,H,W) array, if a NIfTI file
// holds neither a volume of three axes nor a series of volumes, or if the file's numbers are complex.
[[nodiscard]] VolumeFile open_volume_file(const std::filesystem::path& path);

// The dtype in which a volume is kept in memory. Usually this is the stored dtype. But f16, and types of more than two bytes
// except f32, become f32 and are scaled.
[[nodiscard]] DType kept_dtype(const VolumeFile& file);
[[nodiscard]] std::size_t kept_bytes(const VolumeFile& file);  // bytes of a volume in memory, in kept_dtype()

// Reads the first `count` volumes, kept_bytes() each. Throws the errors of format::NpzFile and data::NiftiFile. Also throws
// DataError for a value that is NaN or infinite, and for a file that can't be used or has changed since open_volume_file().
void read_volumes(const VolumeFile& file, std::int64_t count, std::span<std::byte> out);

// Copies the block of `size` at `offset` out of a volume in memory, and scales the block's values. Voxels outside the volume are
// zeros.
void cut_volume(const VolumeFile& file, std::span<const std::byte> volume, const Shape& offset, const Shape& size,
                std::span<float> out);

// Percentiles 0 and 99.5 of a volume in memory, after its values are scaled. Computed as by range_of().
[[nodiscard]] std::array<float, 2> range_of_volume(const VolumeFile& file, std::span<const std::byte> volume);

}  // namespace millrace::recipes::autoencoder_3d
