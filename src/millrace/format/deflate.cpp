#include "millrace/format/deflate.h"

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

namespace millrace::format {
namespace {

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const noexcept { libdeflate_free_decompressor(decompressor); }
};
struct FreeCompressor {
  void operator()(libdeflate_compressor* compressor) const noexcept { libdeflate_free_compressor(compressor); }
};
struct EndInflate {
  void operator()(z_stream* stream) const noexcept { ::inflateEnd(stream); }
};

libdeflate_decompressor& decompressor() {
  thread_local const std::unique_ptr<libdeflate_decompressor, FreeDecompressor> kept(libdeflate_alloc_decompressor());
  if (!kept) throw std::bad_alloc();
  return *kept;
}

std::string announced(std::size_t bytes) { return std::to_string(bytes) + " bytes that are announced"; }

// Describes a result other than success. `room` is the number of bytes that were announced.
std::string problem_of(libdeflate_result result, std::size_t room) {
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE) return "the compressed data holds more than the " + announced(room);
  if (result == LIBDEFLATE_SHORT_OUTPUT) return "the compressed data holds less than the " + announced(room);
  return "the compressed data is damaged or cut off";
}

// Returns true if a gzip member begins here. Other bytes after the last member are padding: tapes and archives fill up their
// blocks with them.
bool is_gzip(std::span<const std::byte> in) { return in.size() > 1 && in[0] == std::byte{0x1F} && in[1] == std::byte{0x8B}; }

// Decodes a member that is larger than `out`, up to a limit. Writes only the member's first bytes to `out`, but checks the
// whole member.
libdeflate_result gunzip_longer(std::span<const std::byte> in, std::span<std::byte> out, std::size_t& used, std::size_t& written,
                                std::uint64_t& passed_over) {
  constexpr std::size_t kPiece = std::size_t{1} << 16U;
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  // The most bytes that a member may have beyond the size of `out`. A longer member is refused, because it may have been made to
  // waste the reader's time.
  constexpr std::size_t kMostBehind = std::size_t{16} << 20U;
  z_stream stream{};
  if (::inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, EndInflate> ends(&stream);
  std::vector<std::byte> behind(kPiece);
  used = written = 0;
  passed_over = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const std::span<std::byte> room = written < out.size() ? out.subspan(written) : std::span(behind);
    // The cast is safe: zlib does not write to its input.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data() + used));
    stream.avail_in = static_cast<uInt>(std::min(in.size() - used, kMost));
    stream.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = static_cast<uInt>(std::min(room.size(), kMost));
    const uInt there = stream.avail_in, wanted = stream.avail_out;
    status = ::inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) return LIBDEFLATE_BAD_DATA;
    used += there - stream.avail_in;
    const uInt made = wanted - stream.avail_out;
    if (written < out.size()) {
      written += made;
    } else {
      passed_over += made;
    }
    if (passed_over > kMostBehind) return LIBDEFLATE_INSUFFICIENT_SPACE;
  }
  return LIBDEFLATE_SUCCESS;
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

std::string inflate(std::span<const std::byte> in, std::span<std::byte> out) {
  std::size_t used = 0;
  const libdeflate_result result =
      libdeflate_deflate_decompress_ex(&decompressor(), in.data(), in.size(), out.data(), out.size(), &used, nullptr);
  if (result != LIBDEFLATE_SUCCESS) return problem_of(result, out.size());
  return used == in.size() ? "" : std::to_string(in.size() - used) + " bytes follow the compressed data";
}

std::string gunzip(std::span<const std::byte> in, std::span<std::byte> out, PassedOver* passed_over) {
  const std::size_t whole = out.size();
  PassedOver all{.is_packed = true};
  std::size_t at = 0;
  do {
    std::size_t used = 0;
    std::size_t written = 0;
    libdeflate_result result =
        libdeflate_gzip_decompress_ex(&decompressor(), in.data() + at, in.size() - at, out.data(), out.size(), &used, &written);
    std::uint64_t beyond = 0;
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) result = gunzip_longer(in.subspan(at), out, used, written, beyond);
    all.inside += beyond;
    if (result != LIBDEFLATE_SUCCESS) {
      return problem_of(result, whole) + (at == 0 ? "" : " (the gzip member that begins at byte " + std::to_string(at) + ")");
    }
    at += used;
    out = out.subspan(written);
  } while (is_gzip(in.subspan(at)));
  all.behind = in.size() - at;
  if (passed_over != nullptr) *passed_over = all;
  return out.empty() ? "" : problem_of(LIBDEFLATE_SHORT_OUTPUT, whole);
}

std::string inflate_head(DeflateFrame frame, std::span<const std::byte> in, std::span<std::byte> out, std::size_t& written) {
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  z_stream stream{};
  const int window = frame == DeflateFrame::gzip ? 16 + MAX_WBITS : -MAX_WBITS;
  if (::inflateInit2(&stream, window) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, EndInflate> ends(&stream);
  // The cast is safe: zlib does not write to its input.
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
  stream.avail_in = static_cast<uInt>(std::min(in.size(), kMost));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(std::min(out.size(), kMost));
  int status = Z_OK;
  while (stream.avail_out > 0 && status == Z_OK) {
    status = ::inflate(&stream, Z_SYNC_FLUSH);
    const std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(stream.next_in), stream.avail_in);
    if (status == Z_STREAM_END && frame == DeflateFrame::gzip && is_gzip(rest)) status = ::inflateReset(&stream);
  }
  written = out.size() - stream.avail_out;
  if (stream.avail_out == 0 || status == Z_STREAM_END) return "";
  return "the compressed data is damaged or cut off";
}

std::vector<std::byte> deflate(DeflateFrame frame, std::span<const std::byte> in, int level) {
  const std::unique_ptr<libdeflate_compressor, FreeCompressor> compressor(libdeflate_alloc_compressor(level));
  if (!compressor) throw std::bad_alloc();
  const bool gzip = frame == DeflateFrame::gzip;
  std::vector<std::byte> out(gzip ? libdeflate_gzip_compress_bound(compressor.get(), in.size())
                                  : libdeflate_deflate_compress_bound(compressor.get(), in.size()));
  const auto compress = gzip ? libdeflate_gzip_compress : libdeflate_deflate_compress;
  out.resize(compress(compressor.get(), in.data(), in.size(), out.data(), out.size()));
  return out;
}

}  // namespace millrace::format
