// The filters 32000 (lzf, reading only), 32004 (lz4) and 32015 (zstd), as registered with The HDF Group.
#include <lz4.h>
#include <lzf.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {
namespace {

constexpr H5Z_filter_t kLzf = 32000;
constexpr H5Z_filter_t kLz4 = 32004;
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

// Gives the library a buffer of malloc in place of its own; 0 means failure, as the library has it.
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

// The third of its values is the chunk's size.
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
  if (content == 0 || content > kMost) return 0;  // includes "unknown" and "error"
  void* made = std::malloc(content);
  if (made == nullptr) return 0;
  const int level = values > 0 ? static_cast<int>(value[0]) : ZSTD_CLEVEL_DEFAULT;
  const std::size_t size =
      decodes ? ZSTD_decompress(made, content, *buffer, bytes) : ZSTD_compress(made, content, *buffer, bytes, level);
  if (ZSTD_isError(size) == 0) return exchange(buffer, buffer_size, made, content, size);
  std::free(made);
  return 0;
}

}  // namespace

void register_filters() {
  static const H5Z_class2_t kClasses[] = {
      {H5Z_CLASS_T_VERS, kLzf, 0, 1, "lzf", nullptr, nullptr, lzf_filter},
      {H5Z_CLASS_T_VERS, kLz4, 1, 1, "lz4", nullptr, nullptr, lz4_filter},
      {H5Z_CLASS_T_VERS, kZstd, 1, 1, "zstd", nullptr, nullptr, zstd_filter},
  };
  for (const H5Z_class2_t& filter : kClasses) check(H5Zregister(&filter));
}

}  // namespace millrace::hdf5::child
