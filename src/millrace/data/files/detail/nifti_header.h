// The 348 or 540 bytes a NIfTI file begins with.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>

#include "millrace/data/files/nifti.h"

namespace millrace::data::detail {

inline constexpr std::size_t kNifti1Bytes = 348, kNifti2Bytes = 540;

// `bytes`: as many of the first kNifti2Bytes as there are. Checks all that the header alone can tell; says what is wrong, or "".
// `is_unread`: that is a datatype that the standard has and nobody here reads.
[[nodiscard]] std::string parse_nifti(std::span<const std::byte> bytes, NiftiHeader& header, bool& is_unread);

// Whether they begin as a NIfTI header does: its size and its magic.
[[nodiscard]] bool has_nifti_magic(std::span<const std::byte> bytes);

[[nodiscard]] int datatype_of(DType dtype);  // the code in nifti1.h; MR_CHECK: there is one

using NiftiMatrix = std::array<std::array<double, 4>, 4>;
// Of pixdim[1] to [3], which the standard wants above 0: the absolute value, of 0 1, as nibabel has it.
[[nodiscard]] double voxel_size(double stored);
// The transform of a qform: rotation of the unit quaternion (a, b, c, d) whose b, c, d are stored, times the voxel sizes;
// pixdim[0] = -1 flips the third axis (nifti1.h, "method 2").
[[nodiscard]] std::string affine_of_qform(const NiftiHeader& header, NiftiMatrix& affine);

// Walks the extensions between the header and `end`. `bytes`: the file's first bytes, at least `end`.
[[nodiscard]] std::string parse_extensions(std::span<const std::byte> bytes, std::uint64_t end, NiftiHeader& header);

}  // namespace millrace::data::detail
