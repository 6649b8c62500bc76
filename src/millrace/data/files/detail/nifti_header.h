// The first 348 or 540 bytes of a NIfTI file.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>

#include "millrace/data/files/nifti.h"

namespace millrace::data::detail {

inline constexpr std::size_t kNifti1Bytes = 348, kNifti2Bytes = 540;

// Parses a header. `bytes`: the first kNifti2Bytes of the file, or fewer if it is shorter. Checks all that the header alone can
// show; returns what is wrong, or "". `is_unread`: the standard has the datatype, but this reader does not support it.
[[nodiscard]] std::string parse_nifti(std::span<const std::byte> bytes, NiftiHeader& header, bool& is_unread);

// True if the bytes begin as a NIfTI header does: with its size and magic.
[[nodiscard]] bool has_nifti_magic(std::span<const std::byte> bytes);

[[nodiscard]] int datatype_of(DType dtype);  // its code in nifti1.h, which must have one

using NiftiMatrix = std::array<std::array<double, 4>, 4>;
// The voxel size for pixdim[1] to [3], which the standard requires to be above 0: the absolute value, and 1 for 0, as in nibabel.
[[nodiscard]] double voxel_size(double stored);
// Sets `affine` to the transform of a qform: rotation by the unit quaternion (a, b, c, d), of which b, c and d are stored, times
// the voxel sizes; pixdim[0] = -1 flips the third axis (nifti1.h, "method 2"). Returns what is wrong, or "".
[[nodiscard]] std::string affine_of_qform(const NiftiHeader& header, NiftiMatrix& affine);

// Reads the list of extensions between the header and `end`. `bytes`: the file's first bytes, at least `end`. Returns what is
// wrong, or "".
[[nodiscard]] std::string parse_extensions(std::span<const std::byte> bytes, std::uint64_t end, NiftiHeader& header);

}  // namespace millrace::data::detail
