// The header of a .npy file: a Python dictionary as text, parsed without Python.
#pragma once

#include <string>
#include <string_view>

#include "millrace/format/npy.h"

namespace millrace::format::detail {

inline constexpr std::size_t kNpyPrologue = 12;          // the magic, the version and the length take at most this many bytes
inline constexpr std::uint64_t kNpyHeaderLimit = 65536;  // a header has some 100 bytes; objects and records may need more

struct NpyPrologue {
  std::uint64_t text_at = 0;
  std::uint64_t header_bytes = 0;  // size of the header with its magic, version and length
  std::string problem;             // what is wrong; "" = the header is valid
};
// Parses the first bytes of a file. `start` has kNpyPrologue bytes, or the whole file if the file has fewer.
[[nodiscard]] NpyPrologue parse_prologue(std::span<const std::byte> start);

struct ParsedNpy {
  NpyLayout layout;
  std::string problem;
  bool is_unread = false;  // the problem is a dtype of NumPy that Millrace does not read
};
// Parses the header and checks everything that the text alone can show. Also checks that header and elements fill exactly
// `whole_bytes`, the size of the .npy file.
[[nodiscard]] ParsedNpy parse_npy(std::string_view text, std::uint64_t header_bytes, std::uint64_t whole_bytes);

// Header of version 1.0 for an array in C order. Throws DataError as write_npy() does.
[[nodiscard]] std::string npy_header(DType dtype, const Shape& shape, std::size_t bytes);

// Converts elements from the file's order to C order and this machine's byte order. `in` and `out` have layout.bytes bytes and
// don't overlap.
void to_native(const NpyLayout& layout, std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace millrace::format::detail
