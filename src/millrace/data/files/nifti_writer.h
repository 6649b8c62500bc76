// NIfTI-1 files, written: .nii, and .nii.gz compressed, in this machine's byte order.
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

inline constexpr std::int32_t kNiftiComment = 6;  // code of an extension that is plain text

// Of `header` are written: dtype, shape, slope and intercept, pixdim, both transforms with their codes, description (its first 79
// bytes). `comments` become extensions, in that order. `voxels` are in C order, slowest axis first, as NiftiFile::read() gives
// them. The file appears whole or not at all, and is the same again for the same input. DataError for a shape that NIfTI-1 has no
// room for (1 to 7 axes of at most 32,767) and for an ending other than .nii and .nii.gz; FsError.
void write_nifti(Fs& fs, const std::filesystem::path& path, const NiftiHeader& header, std::span<const std::byte> voxels,
                 std::span<const std::string> comments = {});

// A header like `like` whose voxels are `factor` times as large along x, y and z, the first of them over the same corner: each
// covers factor^3 of the old ones. A factor below 1 goes back. A header without a transform gets an sform of its default one.
// Shape, dtype and scaling stay.
[[nodiscard]] NiftiHeader with_voxels_of(const NiftiHeader& like, double factor);

}  // namespace millrace::data
