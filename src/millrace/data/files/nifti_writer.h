// Writes NIfTI-1 files, as .nii or compressed as .nii.gz, in this machine's byte order.
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

inline constexpr std::int32_t kNiftiComment = 6;  // code of an extension that holds plain text

// Writes a NIfTI-1 file. From `header` it takes dtype, shape, slope and intercept, pixdim, both transforms with their codes,
// and the first 79 bytes of the description. Each of `comments` becomes an extension, in this order. `voxels` are in C order,
// slowest axis first, as NiftiFile::read() returns them. The file appears whole or not at all; the same input gives the same
// bytes. Throws FsError, and DataError for a shape that does not fit into NIfTI-1 (1 to 7 axes of at most 32,767) or an ending
// other than .nii and .nii.gz.
void write_nifti(Fs& fs, const std::filesystem::path& path, const NiftiHeader& header, std::span<const std::byte> voxels,
                 std::span<const std::string> comments = {});

// Returns a copy of the header `like` for voxels that are `factor` times as large along x, y and z (smaller if factor < 1). The
// first voxel begins at the same corner, so each new voxel covers factor^3 old ones. A header without a transform gets an sform
// that equals its default transform. Shape, dtype and scaling are unchanged.
[[nodiscard]] NiftiHeader with_voxels_of(const NiftiHeader& like, double factor);

}  // namespace millrace::data
