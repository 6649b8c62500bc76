// Undoes the filters of an HDF5 chunk: deflate (1), shuffle (2), fletcher32 (3), lzf (32000), lz4 (32004), zstd (32015).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::hdf5::detail {

// Buffers of one thread; grown, never shrunk.
struct FilterScratch {
  std::vector<std::byte> one;
  std::vector<std::byte> other;
};

// Whether `stored` bytes can make a chunk of that many: asked before memory is taken for it.
[[nodiscard]] bool is_plausible(std::span<const std::uint32_t> filters, std::uint32_t mask, std::uint64_t stored,
                                std::uint64_t chunk) noexcept;

// `filters` in the order in which they were applied; bit i of `mask` set: filter i was left out. At most one of them compresses
// (the layout sees to it). Writes exactly out.size() bytes; allocates no more than about that. Returns null, or what is wrong
// with the bytes. `element_bytes`: the unit of shuffle. On the calling thread, with a decoder of its own.
[[nodiscard]] const char* undo_filters(std::span<const std::uint32_t> filters, std::uint32_t mask,
                                       std::span<const std::byte> stored, std::span<std::byte> out, std::size_t element_bytes,
                                       FilterScratch& scratch);

// out[i * unit + k] = in[k * (size / unit) + i]; bytes that make no whole element stay at the end.
void unshuffle(std::span<const std::byte> in, std::span<std::byte> out, std::size_t unit) noexcept;
// Of The HDF Group's library: Fletcher's sum over big-endian 16-bit words, an odd byte last as a word's high half.
[[nodiscard]] std::uint32_t fletcher32(std::span<const std::byte> bytes) noexcept;

}  // namespace millrace::hdf5::detail
