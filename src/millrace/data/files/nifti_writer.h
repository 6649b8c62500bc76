// Writes NIfTI-1 files: .nii, and .nii.gz compressed, in this machine's byte order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/data/files/nifti.h"

namespace millrace::data {

inline constexpr std::int32_t kNiftiComment = 6;  // extension code for plain text

// Writes dtype, shape, slope and intercept, pixdim, both transforms with their codes and the description (its first 79 bytes) of
// `header`. Each of `comments` becomes an extension, in that order. `voxels` are in C order, slowest axis first, as
// NiftiFile::read() returns them. The file appears whole or not at all; the same input gives the same bytes. DataError for a
// shape that does not fit into NIfTI-1 (1 to 7 axes of at most 32,767) and for an ending other than .nii and .nii.gz; FsError.
void write_nifti(Fs& fs, const std::filesystem::path& path, const NiftiHeader& header, std::span<const std::byte> voxels,
                 std::span<const std::string> comments = {});

// A copy of `like` with voxels `factor` times as large along x, y and z, whose first voxel starts at the same corner: each covers
// factor^3 of the old ones. A factor below 1 makes voxels smaller. A header without a transform gets an sform from its default
// one. Shape, dtype and scaling stay.
[[nodiscard]] NiftiHeader with_voxels_of(const NiftiHeader& like, double factor);

}  // namespace millrace::data
