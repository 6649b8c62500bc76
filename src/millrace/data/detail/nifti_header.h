// The 348 or 540 bytes a NIfTI file begins with.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "millrace/data/nifti.h"

namespace millrace::data::detail {

inline constexpr std::size_t kNifti1Bytes = 348, kNifti2Bytes = 540;

// `bytes`: as many of the first kNifti2Bytes as there are. Checks all that the header alone can tell; says what is wrong, or "".
// `is_unread`: that is a datatype that the standard has and nobody here reads.
[[nodiscard]] std::string parse_nifti(std::span<const std::byte> bytes, NiftiHeader& header, bool& is_unread);

// Walks the extensions between the header and `end`. `bytes`: the file's first bytes, at least `end`.
[[nodiscard]] std::string parse_extensions(std::span<const std::byte> bytes, std::uint64_t end, NiftiHeader& header);

}  // namespace millrace::data::detail
