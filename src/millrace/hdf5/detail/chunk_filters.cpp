#include "millrace/hdf5/detail/chunk_filters.h"

#include <libdeflate.h>
#include <lz4.h>
#include <lzf.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace millrace::hdf5::detail {
namespace {

constexpr std::uint32_t kDeflate = 1;
constexpr std::uint32_t kShuffle = 2;
constexpr std::uint32_t kFletcher32 = 3;
constexpr std::uint32_t kLzf = 32000;
constexpr std::uint32_t kLz4 = 32004;
constexpr std::uint32_t kZstd = 32015;

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* it) const noexcept { libdeflate_free_decompressor(it); }
};
struct FreeContext {
  void operator()(ZSTD_DCtx* it) const noexcept { ZSTD_freeDCtx(it); }
};

const char* inflate(std::span<const std::byte> in, std::span<std::byte> out) {
  thread_local const std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  switch (libdeflate_zlib_decompress(decompressor.get(), in.data(), in.size(), out.data(), out.size(), nullptr)) {
    case LIBDEFLATE_SUCCESS:
      return nullptr;
    case LIBDEFLATE_SHORT_OUTPUT:
      return "its deflate data hold less than a chunk";
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      return "its deflate data hold more than a chunk";
    default:
      return "its deflate data are damaged";
  }
}

const char* undo_lzf(std::span<const std::byte> in, std::span<std::byte> out) {
  constexpr std::size_t kMost = ~0U;
  if (in.size() > kMost || out.size() > kMost) return "its lzf data are too long";
  const unsigned got = lzf_decompress(in.data(), static_cast<unsigned>(in.size()), out.data(), static_cast<unsigned>(out.size()));
  return got == out.size() ? nullptr : "its lzf data are damaged";
}

std::uint64_t big_endian(const std::byte* from, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8U | std::to_integer<std::uint64_t>(from[i]);
  return value;
}

// Undoes the lz4 filter. The stored bytes begin with the size of the whole chunk (8 bytes) and the size of a block (4). Then
// come the blocks, each preceded by its stored size (4). If a block's stored size is its full size, the block is not compressed.
const char* undo_lz4(std::span<const std::byte> in, std::span<std::byte> out) {
  constexpr const char* kDamaged = "its lz4 data are damaged";
  if (in.size() < 12 || big_endian(in.data(), 8) != out.size()) return "its lz4 data are not of a chunk's size";
  const std::uint64_t block = big_endian(in.data() + 8, 4);
  if (block == 0) return kDamaged;
  in = in.subspan(12);
  while (!out.empty()) {
    const std::size_t want = std::min<std::uint64_t>(block, out.size());
    if (in.size() < 4) return kDamaged;
    const std::uint64_t have = big_endian(in.data(), 4);
    in = in.subspan(4);
    if (have > in.size() || have > LZ4_MAX_INPUT_SIZE || want > LZ4_MAX_INPUT_SIZE) return kDamaged;
    if (have == want) {
      std::memcpy(out.data(), in.data(), want);
    } else if (LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
                                   static_cast<int>(have), static_cast<int>(want)) != static_cast<int>(want)) {
      return kDamaged;
    }
    in = in.subspan(have);
    out = out.subspan(want);
  }
  return nullptr;
}

const char* undo_zstd(std::span<const std::byte> in, std::span<std::byte> out) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  const unsigned long long content = ZSTD_getFrameContentSize(in.data(), in.size());
  if (content != ZSTD_CONTENTSIZE_UNKNOWN && content != out.size()) return "its zstd data are not of a chunk's size";
  const std::size_t got = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
  if (ZSTD_isError(got) != 0) return "its zstd data are damaged";
  return got == out.size() ? nullptr : "its zstd data hold less than a chunk";
}

#ifdef __SSE2__
__m128i load(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
void store(std::byte* to, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

// Handles 16 elements at a time and returns the number of elements done. Uses SSE2, which is part of every x86-64.
std::size_t unshuffle_4(const std::byte* in, std::byte* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = load(in + i);
    const __m128i b = load(in + count + i);
    const __m128i c = load(in + 2 * count + i);
    const __m128i d = load(in + 3 * count + i);
    const __m128i ab_low = _mm_unpacklo_epi8(a, b);
    const __m128i ab_high = _mm_unpackhi_epi8(a, b);
    const __m128i cd_low = _mm_unpacklo_epi8(c, d);
    const __m128i cd_high = _mm_unpackhi_epi8(c, d);
    std::byte* const to = out + 4 * i;
    store(to, _mm_unpacklo_epi16(ab_low, cd_low));
    store(to + 16, _mm_unpackhi_epi16(ab_low, cd_low));
    store(to + 32, _mm_unpacklo_epi16(ab_high, cd_high));
    store(to + 48, _mm_unpackhi_epi16(ab_high, cd_high));
  }
  return i;
}

std::size_t unshuffle_8(const std::byte* in, std::byte* out, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m128i pairs[8];  // 0 to 3: the low halves of the pairs of planes 01, 23, 45, 67; 4 to 7: their high halves
    for (std::size_t k = 0; k < 4; ++k) {
      const __m128i a = load(in + 2 * k * count + i);
      const __m128i b = load(in + (2 * k + 1) * count + i);
      pairs[k] = _mm_unpacklo_epi8(a, b);
      pairs[4 + k] = _mm_unpackhi_epi8(a, b);
    }
    for (std::size_t half = 0; half < 2; ++half) {
      const __m128i* const p = pairs + 4 * half;
      std::byte* const to = out + 8 * i + 64 * half;
      const __m128i low_front = _mm_unpacklo_epi16(p[0], p[1]);
      const __m128i low_back = _mm_unpacklo_epi16(p[2], p[3]);
      const __m128i high_front = _mm_unpackhi_epi16(p[0], p[1]);
      const __m128i high_back = _mm_unpackhi_epi16(p[2], p[3]);
      store(to, _mm_unpacklo_epi32(low_front, low_back));
      store(to + 16, _mm_unpackhi_epi32(low_front, low_back));
      store(to + 32, _mm_unpacklo_epi32(high_front, high_back));
      store(to + 48, _mm_unpackhi_epi32(high_front, high_back));
    }
  }
  return i;
}
#endif

std::span<std::byte> room(std::vector<std::byte>& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer.resize(bytes);
  return std::span(buffer).first(bytes);
}

bool is_compression(std::uint32_t filter) { return filter == kDeflate || filter == kLzf || filter == kLz4 || filter == kZstd; }

const char* decompress(std::uint32_t filter, std::span<const std::byte> in, std::span<std::byte> out) {
  if (filter == kDeflate) return inflate(in, out);
  if (filter == kLzf) return undo_lzf(in, out);
  return filter == kLz4 ? undo_lz4(in, out) : undo_zstd(in, out);
}

}  // namespace

void unshuffle(std::span<const std::byte> in, std::span<std::byte> out, std::size_t unit) noexcept {
  const std::size_t count = in.size() / unit;
  std::size_t first = 0;
#ifdef __SSE2__
  if (unit == 4) first = unshuffle_4(in.data(), out.data(), count);
  if (unit == 8) first = unshuffle_8(in.data(), out.data(), count);
#endif
  // Works in pieces, so that the planes' bytes stay in the cache while elements are assembled.
  constexpr std::size_t kPiece = 256;
  for (std::size_t begin = first; begin < count; begin += kPiece) {
    const std::size_t end = std::min(count, begin + kPiece);
    for (std::size_t k = 0; k < unit; ++k) {
      const std::byte* const plane = in.data() + k * count;
      for (std::size_t i = begin; i < end; ++i) out[i * unit + k] = plane[i];
    }
  }
  const std::size_t whole = count * unit;
  if (whole < in.size()) std::memcpy(out.data() + whole, in.data() + whole, in.size() - whole);
}

std::uint32_t fletcher32(std::span<const std::byte> bytes) noexcept {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::size_t at = 0;
  const std::size_t even = bytes.size() & ~std::size_t{1};
  while (at < even) {
    // Sums at most 2^16 words between reductions, so that the sums stay below 2^50.
    const std::size_t end = std::min(even, at + (std::size_t{1} << 17U));
    for (; at < end; at += 2) {
      first += std::to_integer<std::uint64_t>(bytes[at]) << 8U | std::to_integer<std::uint64_t>(bytes[at + 1]);
      second += first;
    }
    first %= 65535;
    second %= 65535;
  }
  if (even < bytes.size()) {
    first += std::to_integer<std::uint64_t>(bytes[even]) << 8U;
    second += first;
  }
  // The library folds carries instead of dividing. For a remainder of 0 the sum is therefore 65535, unless only zeros were
  // added.
  const auto fold = [&](std::uint64_t sum, bool only_zeros) {
    const auto rest = static_cast<std::uint32_t>(sum % 65535);
    return rest == 0 && !only_zeros ? 65535U : rest;
  };
  const bool zeros = std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
  return fold(second, zeros) << 16U | fold(first, zeros);
}

bool is_plausible(std::span<const std::uint32_t> filters, std::uint32_t mask, std::uint64_t stored,
                  std::uint64_t chunk) noexcept {
  std::uint64_t ratio = 1;  // the most bytes that one stored byte can become
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if ((mask >> i & 1U) != 0) continue;
    if (filters[i] == kDeflate) ratio = 1032;
    if (filters[i] == kLzf) ratio = 132;  // two bytes become at most 264
    if (filters[i] == kLz4) ratio = 255;
    if (filters[i] == kZstd) ratio = 43'691;  // three bytes become at most a block of 128 KiB
  }
  return chunk / ratio <= stored;
}

const char* undo_filters(std::span<const std::uint32_t> filters, std::uint32_t mask, std::span<const std::byte> stored,
                         std::span<std::byte> out, std::size_t element_bytes, FilterScratch& scratch) {
  const auto active = [&](std::size_t i) { return (mask >> i & 1U) == 0; };
  std::size_t changing = 0;        // number of filters that write their result to a new buffer
  std::size_t plain = out.size();  // size of the compression's input: the chunk, and 4 bytes for each checksum appended before
  bool seen = false;
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if (!active(i)) continue;
    seen = seen || is_compression(filters[i]);
    if (filters[i] == kFletcher32 && !seen) plain += 4;
    changing += static_cast<std::size_t>(filters[i] != kFletcher32);
  }
  std::span<const std::byte> bytes = stored;
  for (std::size_t i = filters.size(); i-- > 0;) {
    if (!active(i)) continue;
    if (filters[i] == kFletcher32) {
      if (bytes.size() < 4) return "it is shorter than its checksum";
      std::uint32_t expected = 0;
      std::memcpy(&expected, bytes.data() + bytes.size() - 4, 4);
      bytes = bytes.first(bytes.size() - 4);
      if (fletcher32(bytes) != expected) return "its fletcher32 checksum is wrong";
      continue;
    }
    --changing;
    const std::size_t size = is_compression(filters[i]) ? plain : bytes.size();
    const bool last = changing == 0 && size == out.size();
    std::vector<std::byte>& free_buffer = bytes.data() == scratch.one.data() ? scratch.other : scratch.one;
    const std::span<std::byte> to = last ? out : room(free_buffer, size);
    if (filters[i] == kShuffle) {
      unshuffle(bytes, to, element_bytes);
    } else if (const char* wrong = decompress(filters[i], bytes, to); wrong != nullptr) {
      return wrong;
    }
    bytes = to;
  }
  if (bytes.size() != out.size()) return "its size is not that of a chunk";
  if (bytes.data() != out.data()) std::memcpy(out.data(), bytes.data(), out.size());
  return nullptr;
}

}  // namespace millrace::hdf5::detail
