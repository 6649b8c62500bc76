// DEFLATE streams (RFC 1951) with and without gzip's frame (RFC 1952). One call decodes a stream into memory of a known size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::format {

// The largest ratio of decompressed to compressed bytes in a DEFLATE stream. A reader can use it to check an announced size
// before it allocates memory.
inline constexpr std::uint64_t kDeflateMostExpansion = 1032;

// Returns the CRC-32 as in gzip, zip and PNG. Continues from `crc` (0 to begin).
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

// The following functions keep one decoder per thread. They return "" or describe what is wrong with the stream.

// Decodes a raw stream, which must fill `out` exactly and end where `in` ends.
[[nodiscard]] std::string inflate(std::span<const std::byte> in, std::span<std::byte> out);
// Numbers of bytes that a reader ignored.
struct PassedOver {
  std::uint64_t inside = 0;  // decompressed bytes beyond the requested ones
  std::uint64_t behind = 0;  // bytes of the file after the last gzip member or, if the file is not compressed, after the data
  bool is_packed = false;
};
// Reads the first out.size() bytes of consecutive gzip members, and checks each member's CRC and size. Like other readers, it
// ignores the bytes of the last member that do not fit into `out`, and the bytes after that member; `passed_over` receives both
// numbers.
[[nodiscard]] std::string gunzip(std::span<const std::byte> in, std::span<std::byte> out, PassedOver* passed_over = nullptr);

enum class DeflateFrame : std::uint8_t { raw, gzip };
// Decompresses the first out.size() bytes, for a header. `written` receives the number of bytes decompressed, which is smaller
// if the data ends earlier.
[[nodiscard]] std::string inflate_head(DeflateFrame frame, std::span<const std::byte> in, std::span<std::byte> out,
                                       std::size_t& written);

// Compresses the bytes; `level` is 1 to 12.
[[nodiscard]] std::vector<std::byte> deflate(DeflateFrame frame, std::span<const std::byte> in, int level = 6);

}  // namespace millrace::format
