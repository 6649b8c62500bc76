// Decodes PNG pictures (the W3C's "PNG Specification, third edition") with libspng into given memory. Palettes, 1 to 16 bits and
// interlacing are read; 16 bits keep their upper 8; an alpha channel is dropped, as Pillow's convert("RGB") does.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/format/pixels.h"

namespace millrace::format {

[[nodiscard]] bool is_png(std::span<const std::byte> start) noexcept;

inline constexpr std::size_t kPngStart = 33;

// Reads the size from the header. `start` is at least the file's first kPngStart bytes, `file_bytes` the size of the whole file.
// Throws DataError if the file is not PNG, or if its picture has a size that this many bytes can't hold.
[[nodiscard]] PictureSize png_size(PictureFile start, std::uint64_t file_bytes);

// Decodes a picture into `out`, which has height * width * channels bytes. Every chunk's CRC is checked first. A coloured
// picture is turned to gray by (19595 R + 38470 G + 7471 B + 32768) >> 16, which is ITU-R 601 as Pillow rounds it. The DataError
// of a damaged file names chunk and byte.
void decode_png(PictureFile file, Pixels pixels, std::span<std::byte> out);

// Encodes a picture; `pixels` holds all pixels of `size`. Equal pictures give equal bytes.
[[nodiscard]] std::vector<std::byte> encode_png(const PictureSize& size, std::span<const std::byte> pixels);
// Writes the bytes that encode_png() returns to a file, whole or not at all.
void write_png(Fs& fs, const std::filesystem::path& path, const PictureSize& size, std::span<const std::byte> pixels);

}  // namespace millrace::format
