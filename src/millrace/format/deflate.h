// DEFLATE streams (RFC 1951) with and without gzip's frame (RFC 1952), decoded in one go into memory of a known size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::format {

// No DEFLATE stream expands more than this: a size announced for compressed bytes can be judged before memory is taken.
inline constexpr std::uint64_t kDeflateMostExpansion = 1032;

// CRC-32 as gzip, zip and PNG have it. Continues from `crc` (0 to begin).
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

// The following decode with one decoder per thread, kept. They return "" or say what is wrong with the stream.

// A raw stream that fills `out` exactly and ends with `in`.
[[nodiscard]] std::string inflate(std::span<const std::byte> in, std::span<std::byte> out);
// Bytes that a reader leaves aside.
struct PassedOver {
  std::uint64_t inside = 0;  // decompressed, beyond what was asked for
  std::uint64_t behind = 0;  // of the file, behind the last member or, where nothing is compressed, behind the data
  bool is_packed = false;
};
// The first out.size() bytes of gzip members, one after the other; each member's CRC and size are checked. As other readers do,
// it passes over what the last one holds beyond `out`, and over what stands behind it and is no member, and tells how much.
[[nodiscard]] std::string gunzip(std::span<const std::byte> in, std::span<std::byte> out, PassedOver* passed_over = nullptr);

enum class DeflateFrame : std::uint8_t { raw, gzip };
// The first out.size() bytes, for a header. `written` says how many there are when the data ends before.
[[nodiscard]] std::string inflate_head(DeflateFrame frame, std::span<const std::byte> in, std::span<std::byte> out,
                                       std::size_t& written);

// level 1 to 12.
[[nodiscard]] std::vector<std::byte> deflate(DeflateFrame frame, std::span<const std::byte> in, int level = 6);

}  // namespace millrace::format
