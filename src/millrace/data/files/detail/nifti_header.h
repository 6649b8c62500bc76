// Reads the header of a NIfTI file: its first 348 bytes (version 1) or 540 bytes (version 2).
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>

#include "millrace/data/files/nifti.h"

namespace millrace::data::detail {

inline constexpr std::size_t kNifti1Bytes = 348, kNifti2Bytes = 540;

// Parses a header and checks everything that the header alone can show. `bytes`: the first kNifti2Bytes of the file, or the
// whole file if it is shorter. Returns what is wrong, or "". `is_unread` is set if the datatype is valid but Millrace does not
// read it.
[[nodiscard]] std::string parse_nifti(std::span<const std::byte> bytes, NiftiHeader& header, bool& is_unread);

// Returns true if the bytes begin like a NIfTI header: with the header's size and magic.
[[nodiscard]] bool has_nifti_magic(std::span<const std::byte> bytes);

[[nodiscard]] int datatype_of(DType dtype);  // returns the code of `dtype` in nifti1.h; `dtype` must have a code

using NiftiMatrix = std::array<std::array<double, 4>, 4>;
// Returns the size of a voxel from pixdim[1], [2] or [3]. The standard requires values above 0. This function returns the
// absolute value, or 1 for 0, as nibabel does.
[[nodiscard]] double voxel_size(double stored);
// Sets `affine` to the transform that the qform describes ("method 2" of nifti1.h): a rotation times the voxel sizes. The
// rotation is the unit quaternion (a, b, c, d), whose b, c and d are stored. pixdim[0] = -1 flips the third axis. Returns what is
// wrong, or "".
[[nodiscard]] std::string affine_of_qform(const NiftiHeader& header, NiftiMatrix& affine);

// Reads the list of extensions between the header and byte `end`. `bytes`: at least the first `end` bytes of the file. Returns
// what is wrong, or "".
[[nodiscard]] std::string parse_extensions(std::span<const std::byte> bytes, std::uint64_t end, NiftiHeader& header);

}  // namespace millrace::data::detail
