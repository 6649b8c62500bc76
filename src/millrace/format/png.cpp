#include "millrace/format/png.h"

#include <spng.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/format/deflate.h"

namespace millrace::format {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1A\n", 8);
constexpr std::size_t kChunkFrame = 12;  // bytes of a chunk's length, name and CRC
constexpr std::uint8_t kGray = 0, kGrayAlpha = 4;

struct FreeContext {
  void operator()(spng_ctx* context) const noexcept { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Context context(int flags) {
  Context result(spng_ctx_new(flags));
  if (!result) throw std::bad_alloc();
  return result;
}

[[noreturn]] void refuse_png(const std::filesystem::path& path, std::string what) {
  throw DataError({std::move(what), path.string(), "use an intact PNG file: copy or write it again"});
}

std::uint64_t number(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8U | std::to_integer<std::uint64_t>(bytes[at + i]);
  return value;
}

std::string_view name_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()) + at, 4};
}

struct Header {
  PictureSize size;
  unsigned depth = 0;
  unsigned color = 0;
};

Header parse_header(PictureFile file, std::uint64_t file_bytes) {
  const std::span<const std::byte> bytes = file.bytes;
  if (!is_png(bytes)) refuse_png(file.path, "not a PNG file: it does not begin with \\x89PNG");
  if (bytes.size() < kPngStart)
    refuse_png(file.path, "the PNG file is cut off: it has only " + std::to_string(bytes.size()) + " bytes");
  if (number(bytes, 8) != 13 || name_at(bytes, 12) != "IHDR")
    refuse_png(file.path, "the PNG file does not begin with an IHDR chunk");
  Header header;
  header.size.width = static_cast<std::int64_t>(number(bytes, 16));
  header.size.height = static_cast<std::int64_t>(number(bytes, 20));
  header.depth = std::to_integer<unsigned>(bytes[24]);
  header.color = std::to_integer<unsigned>(bytes[25]);
  header.size.stored = header.color == kGray || header.color == kGrayAlpha ? Pixels::gray : Pixels::rgb;
  constexpr std::int64_t kMost = 0x7FFFFFFF;
  const std::string shape = std::to_string(header.size.width) + " x " + std::to_string(header.size.height);
  if (header.size.width < 1 || header.size.height < 1 || header.size.width > kMost || header.size.height > kMost) {
    refuse_png(file.path, "the PNG header announces " + shape + " pixels, which is not possible");
  }
  // The least possible size of the file: each row has at least one bit a pixel and a filter byte, and the compression ratio has
  // an upper bound.
  const std::uint64_t least =
      static_cast<std::uint64_t>(header.size.height) * (1 + static_cast<std::uint64_t>(header.size.width) / 8);
  if (least / kDeflateMostExpansion > file_bytes) {
    refuse_png(file.path,
               "the PNG header announces " + shape + " pixels, but " + std::to_string(file_bytes) + " bytes can't hold so many");
  }
  return header;
}

// Checks that all chunks are whole, end with IEND and match their CRC. After this check libspng reads no data that was cut off.
void check_chunks(PictureFile file) {
  const std::span<const std::byte> bytes = file.bytes;
  for (std::size_t at = kSignature.size();;) {
    if (bytes.size() - at < kChunkFrame) {
      refuse_png(file.path, "the PNG file is cut off at byte " + std::to_string(bytes.size()) + ": no IEND chunk");
    }
    const std::uint64_t length = number(bytes, at);
    const std::string_view name = name_at(bytes, at + 4);
    const std::string who = "PNG chunk " + quoted(name) + " at byte " + std::to_string(at);
    if (length > bytes.size() - at - kChunkFrame) {
      refuse_png(file.path, who + " announces " + std::to_string(length) + " bytes, but only " +
                                std::to_string(bytes.size() - at - kChunkFrame) + " follow: the file was cut off");
    }
    if (crc32(bytes.subspan(at + 4, 4 + length)) != number(bytes, at + 8 + length))
      refuse_png(file.path, who + " is damaged: its CRC differs");
    at += kChunkFrame + length;
    if (name == "IEND") return;
  }
}

void decode(PictureFile file, spng_format format, std::span<std::byte> out) {
  const Context decoder = context(0);
  // libspng need not check CRCs, because they are checked above, where the check is faster.
  spng_set_crc_action(decoder.get(), SPNG_CRC_USE, SPNG_CRC_USE);
  int status = spng_set_png_buffer(decoder.get(), file.bytes.data(), file.bytes.size());
  std::size_t needed = 0;
  if (status == SPNG_OK) status = spng_decoded_image_size(decoder.get(), format, &needed);
  if (status == SPNG_OK) {
    MR_CHECK(needed == out.size(), "the memory for a picture must have the picture's size");
    status = spng_decode_image(decoder.get(), out.data(), out.size(), format, 0);
  }
  if (status != SPNG_OK) refuse_png(file.path, "the PNG file can't be decoded: " + std::string(spng_strerror(status)));
}

}  // namespace

bool is_png(std::span<const std::byte> start) noexcept {
  return std::string_view(reinterpret_cast<const char*>(start.data()), start.size()).starts_with(kSignature);
}

PictureSize png_size(PictureFile start, std::uint64_t file_bytes) { return parse_header(start, file_bytes).size; }

void decode_png(PictureFile file, Pixels pixels, std::span<std::byte> out) {
  const Header header = parse_header(file, file.bytes.size());
  const auto count = static_cast<std::size_t>(header.size.height) * static_cast<std::size_t>(header.size.width);
  MR_CHECK(out.size() == count * static_cast<std::size_t>(pixels), "the memory for a picture must have the picture's size");
  check_chunks(file);
  if (pixels == Pixels::rgb) return decode(file, SPNG_FMT_RGB8, out);
  if (header.color == kGray && header.depth <= 8) return decode(file, SPNG_FMT_G8, out);
  thread_local std::vector<std::byte> kept;
  if (kept.size() < count * 3) kept.resize(count * 3);
  const std::span<std::byte> colored = std::span(kept).first(count * 3);
  decode(file, SPNG_FMT_RGB8, colored);
  const auto value = [&](std::size_t at) { return std::to_integer<std::uint32_t>(colored[at]); };
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::byte>((value(3 * i) * 19595 + value(3 * i + 1) * 38470 + value(3 * i + 2) * 7471 + 32768) >> 16U);
  }
}

std::vector<std::byte> encode_png(const PictureSize& size, std::span<const std::byte> pixels) {
  MR_CHECK(size.height > 0 && size.width > 0, "a picture has pixels");
  const Context encoder = context(SPNG_CTX_ENCODER);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(size.width);
  header.height = static_cast<std::uint32_t>(size.height);
  header.bit_depth = 8;
  header.color_type = size.stored == Pixels::gray ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  int status = spng_set_option(encoder.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (status == SPNG_OK) status = spng_set_ihdr(encoder.get(), &header);
  if (status == SPNG_OK)
    status = spng_encode_image(encoder.get(), pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  std::size_t bytes = 0;
  const std::unique_ptr<void, decltype(&std::free)> made(
      status == SPNG_OK ? spng_get_png_buffer(encoder.get(), &bytes, &status) : nullptr, &std::free);
  MR_CHECK(made != nullptr, std::string("PNG: ") + spng_strerror(status));
  const auto* const begin = static_cast<const std::byte*>(made.get());
  return {begin, begin + bytes};
}

void write_png(Fs& fs, const std::filesystem::path& path, const PictureSize& size, std::span<const std::byte> pixels) {
  const std::vector<std::byte> bytes = encode_png(size, pixels);
  write_atomically(fs, path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace millrace::format
