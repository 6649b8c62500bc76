// Implements the filters 32000 (lzf, reading only), 32004 (lz4), 32008 (bitshuffle, reading only) and 32015 (zstd), as registered
// with The HDF Group.
#include <lz4.h>
#include <lzf.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {
namespace {

constexpr H5Z_filter_t kLzf = 32000;
constexpr H5Z_filter_t kLz4 = 32004;
constexpr H5Z_filter_t kBitshuffle = 32008;
constexpr H5Z_filter_t kZstd = 32015;
constexpr std::size_t kLz4Block = std::size_t{1} << 30U;

void put_big_endian(unsigned char* to, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) {
    to[i] = static_cast<unsigned char>(value & 0xFFU);
    value >>= 8U;
  }
}

std::uint64_t big_endian(const unsigned char* from, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8U | from[i];
  return value;
}

// Replaces the library's buffer by one from malloc. Returns 0 on failure, as the library expects.
std::size_t exchange(void** buffer, std::size_t* buffer_size, void* made, std::size_t made_size, std::size_t bytes) {
  std::free(*buffer);
  *buffer = made;
  *buffer_size = made_size;
  return bytes;
}

std::size_t lz4_decode(std::size_t bytes, std::size_t* buffer_size, void** buffer) {
  constexpr std::size_t kMost = std::size_t{1} << 32U;
  const auto* at = static_cast<const unsigned char*>(*buffer);
  const unsigned char* const end = at + bytes;
  if (bytes < 12) return 0;
  const std::uint64_t whole = big_endian(at, 8);
  std::uint64_t block = big_endian(at + 8, 4);
  at += 12;
  if (whole == 0 || whole > kMost || whole > 256 * bytes || block == 0) return 0;
  block = std::min(block, whole);
  auto* made = static_cast<char*>(std::malloc(whole));
  std::uint64_t done = 0;
  while (made != nullptr && done < whole) {
    const auto want = static_cast<int>(std::min(block, whole - done));
    const std::uint64_t have = end - at >= 4 ? big_endian(at, 4) : ~std::uint64_t{0};
    if (have > static_cast<std::uint64_t>(end - at) - 4 || have > LZ4_MAX_INPUT_SIZE) break;
    at += 4;
    if (have == static_cast<std::uint64_t>(want)) {
      std::memcpy(made + done, at, have);
    } else if (LZ4_decompress_safe(reinterpret_cast<const char*>(at), made + done, static_cast<int>(have), want) != want) {
      break;
    }
    at += have;
    done += static_cast<std::uint64_t>(want);
  }
  if (made != nullptr && done == whole) return exchange(buffer, buffer_size, made, whole, whole);
  std::free(made);
  return 0;
}

std::size_t lz4_encode(std::size_t bytes, std::size_t* buffer_size, void** buffer) {
  const std::size_t block = std::min(bytes, kLz4Block);
  const std::size_t blocks = (bytes + block - 1) / block;
  const std::size_t room = 12 + blocks * (4 + static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(block))));
  auto* made = static_cast<unsigned char*>(std::malloc(room));
  if (made == nullptr) return 0;
  put_big_endian(made, bytes, 8);
  put_big_endian(made + 8, block, 4);
  std::size_t at = 12;
  const auto* from = static_cast<const char*>(*buffer);
  for (std::size_t done = 0; done < bytes; done += block) {
    const auto size = static_cast<int>(std::min(block, bytes - done));
    int packed = LZ4_compress_default(from + done, reinterpret_cast<char*>(made + at + 4), size, LZ4_compressBound(size));
    if (packed <= 0 || packed >= size) {
      std::memcpy(made + at + 4, from + done, static_cast<std::size_t>(size));
      packed = size;
    }
    put_big_endian(made + at, static_cast<std::uint64_t>(packed), 4);
    at += 4 + static_cast<std::size_t>(packed);
  }
  return exchange(buffer, buffer_size, made, room, at);
}

std::size_t lz4_filter(unsigned flags, std::size_t, const unsigned*, std::size_t bytes, std::size_t* buffer_size, void** buffer) {
  if (bytes == 0) return 0;
  return (flags & H5Z_FLAG_REVERSE) != 0 ? lz4_decode(bytes, buffer_size, buffer) : lz4_encode(bytes, buffer_size, buffer);
}

// The lzf filter. The third value of its settings is the size of the chunk.
std::size_t lzf_filter(unsigned flags, std::size_t values, const unsigned* value, std::size_t bytes, std::size_t* buffer_size,
                       void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) == 0 || values < 3 || value[2] == 0 || value[2] / 264 > bytes) return 0;
  void* made = std::malloc(value[2]);
  if (made == nullptr) return 0;
  const unsigned size = lzf_decompress(*buffer, static_cast<unsigned>(bytes), made, value[2]);
  if (size != 0) return exchange(buffer, buffer_size, made, value[2], size);
  std::free(made);
  return 0;
}

std::size_t zstd_filter(unsigned flags, std::size_t values, const unsigned* value, std::size_t bytes, std::size_t* buffer_size,
                        void** buffer) {
  if (bytes == 0) return 0;
  const bool decodes = (flags & H5Z_FLAG_REVERSE) != 0;
  const unsigned long long content = decodes ? ZSTD_getFrameContentSize(*buffer, bytes) : ZSTD_compressBound(bytes);
  constexpr unsigned long long kMost = 1ULL << 32U;
  if (content == 0 || content > kMost) return 0;  // zstd's results "unknown" and "error" are larger than kMost
  void* made = std::malloc(content);
  if (made == nullptr) return 0;
  const int level = values > 0 ? static_cast<int>(value[0]) : ZSTD_CLEVEL_DEFAULT;
  const std::size_t size =
      decodes ? ZSTD_decompress(made, content, *buffer, bytes) : ZSTD_compress(made, content, *buffer, bytes, level);
  if (ZSTD_isError(size) == 0) return exchange(buffer, buffer_size, made, content, size);
  std::free(made);
  return 0;
}

// Undoes the shuffle of bits: bit k of byte j of element i is bit i of row 8 j + k in `from`. A row has count / 8 bytes; a
// byte's first bit is its lowest. `count`: number of elements, a multiple of 8.
void unshuffle_bits(const unsigned char* from, unsigned char* to, std::size_t count, std::size_t element) {
  const std::size_t row = count / 8;
  for (std::size_t byte = 0; byte < element; ++byte) {
    for (std::size_t eight = 0; eight < row; ++eight) {
      std::array<unsigned char, 8> out{};
      for (std::size_t bit = 0; bit < 8; ++bit) {
        const unsigned from_bits = from[(byte * 8 + bit) * row + eight];
        for (std::size_t i = 0; i < 8; ++i) out.at(i) |= static_cast<unsigned char>((from_bits >> i & 1U) << bit);
      }
      for (std::size_t i = 0; i < 8; ++i) to[(eight * 8 + i) * element + byte] = out.at(i);
    }
  }
}

// Unpacks a block that was compressed as `packing` says (0: not compressed, 2: lz4, 3: zstd). Returns false if the block is
// damaged.
bool unpack_block(unsigned packing, const unsigned char* from, std::size_t have, unsigned char* to, std::size_t want) {
  if (packing == 2) {
    if (have > LZ4_MAX_INPUT_SIZE || want > LZ4_MAX_INPUT_SIZE) return false;
    return LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to), static_cast<int>(have),
                               static_cast<int>(want)) == static_cast<int>(want);
  }
  return ZSTD_decompress(to, want, from, have) == want;
}

// The bitshuffle filter. Its settings are: two values for its version, bytes per element, elements per block (0: about 8 KB),
// compression of blocks. Compressed data begin with the size of the whole (8 bytes) and the bytes of a block (4). Then come the
// blocks, each preceded by its size (4). If fewer than eight elements remain at the end, they are stored unchanged.
std::size_t bitshuffle_filter(unsigned flags, std::size_t values, const unsigned* value, std::size_t bytes,
                              std::size_t* buffer_size, void** buffer) {
  constexpr std::size_t kMost = std::size_t{1} << 32U;
  if ((flags & H5Z_FLAG_REVERSE) == 0 || values < 3 || value[2] == 0 || value[2] > 4096) return 0;
  const std::size_t element = value[2];
  const unsigned packing = values > 4 ? value[4] : 0;
  const auto* at = static_cast<const unsigned char*>(*buffer);
  const unsigned char* const end = at + bytes;
  std::size_t whole = bytes;
  std::size_t block = values > 3 ? value[3] : 0;
  if (packing != 0) {
    if ((packing != 2 && packing != 3) || bytes < 12) return 0;
    whole = big_endian(at, 8);
    block = big_endian(at + 8, 4) / element;
    at += 12;
    if (whole / 50'000 > bytes) return 0;  // neither lz4 nor zstd makes so many bytes from one byte
  }
  if (block == 0) block = std::max<std::size_t>(8192 / element / 8 * 8, 128);
  if (whole == 0 || whole > kMost || whole % element != 0 || block % 8 != 0) return 0;
  auto* made = static_cast<unsigned char*>(std::malloc(whole));
  const std::unique_ptr<unsigned char[]> rows(new (std::nothrow) unsigned char[std::min(block * element, whole)]);
  const std::size_t in_blocks = whole / element / 8 * 8;  // number of elements in the blocks
  std::size_t done = 0;
  bool sound = made != nullptr && rows;
  while (sound && done < in_blocks) {
    const std::size_t count = std::min(block, in_blocks - done);
    const std::size_t want = count * element;
    std::size_t have = want;
    if (packing != 0) {
      have = end - at >= 4 ? big_endian(at, 4) : kMost;
      at += std::min<std::ptrdiff_t>(4, end - at);
    }
    sound = have <= static_cast<std::size_t>(end - at);
    if (!sound) break;
    if (packing != 0) sound = unpack_block(packing, at, have, rows.get(), want);
    unshuffle_bits(packing == 0 ? at : rows.get(), made + done * element, count, element);
    at += have;
    done += count;
  }
  const std::size_t rest = whole - in_blocks * element;
  if (sound && static_cast<std::size_t>(end - at) == rest) {
    std::memcpy(made + in_blocks * element, at, rest);
    return exchange(buffer, buffer_size, made, whole, whole);
  }
  std::free(made);
  return 0;
}

}  // namespace

void register_filters() {
  static const H5Z_class2_t kClasses[] = {
      {H5Z_CLASS_T_VERS, kLzf, 0, 1, "lzf", nullptr, nullptr, lzf_filter},
      {H5Z_CLASS_T_VERS, kLz4, 1, 1, "lz4", nullptr, nullptr, lz4_filter},
      {H5Z_CLASS_T_VERS, kBitshuffle, 0, 1, "bitshuffle", nullptr, nullptr, bitshuffle_filter},
      {H5Z_CLASS_T_VERS, kZstd, 1, 1, "zstd", nullptr, nullptr, zstd_filter},
  };
  for (const H5Z_class2_t& filter : kClasses) check(H5Zregister(&filter));
}

}  // namespace millrace::hdf5::child
