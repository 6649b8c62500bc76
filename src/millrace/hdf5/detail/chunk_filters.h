// Undoes the filters of an HDF5 chunk: deflate (1), shuffle (2), fletcher32 (3), lzf (32000), lz4 (32004), zstd (32015).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::hdf5::detail {

// Buffers of one thread, which grow but never shrink.
struct FilterScratch {
  std::vector<std::byte> one;
  std::vector<std::byte> other;
};

// Returns true if `stored` bytes can decode to a chunk of `chunk` bytes. This is checked before memory is allocated for the
// chunk.
[[nodiscard]] bool is_plausible(std::span<const std::uint32_t> filters, std::uint32_t mask, std::uint64_t stored,
                                std::uint64_t chunk) noexcept;

// Decodes a chunk. `filters` are in the order in which they were applied; if bit i of `mask` is set, filter i was skipped. At
// most one filter compresses (the layout ensures it). Writes exactly out.size() bytes and allocates little more than that.
// Returns null, or what is wrong with the bytes. `element_bytes` is the unit of shuffle. Runs on the calling thread, with that
// thread's decoder.
[[nodiscard]] const char* undo_filters(std::span<const std::uint32_t> filters, std::uint32_t mask,
                                       std::span<const std::byte> stored, std::span<std::byte> out, std::size_t element_bytes,
                                       FilterScratch& scratch);

// Undoes shuffle: out[i * unit + k] = in[k * (size / unit) + i]. Trailing bytes that do not fill an element stay at the end.
void unshuffle(std::span<const std::byte> in, std::span<std::byte> out, std::size_t unit) noexcept;
// Fletcher's sum over big-endian 16-bit words, as in The HDF Group's library. An odd last byte is the high half of a word.
[[nodiscard]] std::uint32_t fletcher32(std::span<const std::byte> bytes) noexcept;

}  // namespace millrace::hdf5::detail
