#include "millrace/base/hash.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

using Crc32cTables = std::array<std::array<std::uint32_t, 256>, 8>;

// Makes the tables of the slicing-by-8 method. Table k is for the byte that is followed by k bytes in an eight-byte word.
constexpr Crc32cTables make_crc32c_tables() {
  Crc32cTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t previous = tables[k - 1][i];
      tables[k][i] = (previous >> 8U) ^ tables[0][previous & 0xFFU];
    }
  }
  return tables;
}

constexpr Crc32cTables kCrc32c = make_crc32c_tables();

std::uint32_t crc32c_portable(const std::byte* data, std::size_t size, std::uint32_t crc) noexcept {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t low = i < 4 ? crc >> (8 * i) : 0U;
      next ^= kCrc32c[7 - i][(low ^ std::to_integer<std::uint32_t>(data[i])) & 0xFFU];
    }
    crc = next;
  }
  for (; size > 0; ++data, --size) crc = (crc >> 8U) ^ kCrc32c[0][(crc ^ std::to_integer<std::uint32_t>(*data)) & 0xFFU];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(const std::byte* data, std::size_t size,
                                                             std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++data, --size) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*data));
  return crc;
}

__attribute__((target("sse4.2"))) void crc32c_of_three(const std::byte* data, std::size_t block, std::uint32_t* crcs) noexcept {
  std::uint64_t a = 0xFFFFFFFFU;
  std::uint64_t b = a;
  std::uint64_t c = a;
  for (std::size_t at = 0; at < block; at += 8) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t i = 0; i < 3; ++i) std::memcpy(&words[i], data + i * block + at, 8);
    a = _mm_crc32_u64(a, words[0]);
    b = _mm_crc32_u64(b, words[1]);
    c = _mm_crc32_u64(c, words[2]);
  }
  crcs[0] = ~static_cast<std::uint32_t>(a);
  crcs[1] = ~static_cast<std::uint32_t>(b);
  crcs[2] = ~static_cast<std::uint32_t>(c);
}
#endif

}  // namespace

namespace detail {
std::uint32_t crc32c_without_sse(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  return ~crc32c_portable(bytes.data(), bytes.size(), ~crc);
}
}  // namespace detail

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return ~crc32c_sse42(bytes.data(), bytes.size(), ~crc);
#endif
  return detail::crc32c_without_sse(bytes, crc);
}

void crc32c_blocks(std::span<const std::byte> bytes, std::size_t block, std::span<std::uint32_t> crcs) noexcept {
  std::size_t i = 0;
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42 && block % 8 == 0) {
    for (; (i + 3) * block <= bytes.size(); i += 3) crc32c_of_three(bytes.data() + i * block, block, crcs.data() + i);
  }
#endif
  for (; i * block < bytes.size(); ++i) crcs[i] = crc32c(bytes.subspan(i * block, std::min(block, bytes.size() - i * block)));
}

}  // namespace millrace
