#include "millrace/base/hash.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace {
namespace {

using Crc32cTables = std::array<std::array<std::uint32_t, 256>, 8>;

// Slicing by eight: table k advances a byte that stands k bytes before the end of an eight-byte word.
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
#endif

constexpr std::array<std::uint32_t, 64> kSha256 = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

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

Sha256::Sha256() noexcept
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::compress(const std::uint8_t* block) noexcept {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = std::uint32_t{block[4 * i]} << 24U | std::uint32_t{block[4 * i + 1]} << 16U | std::uint32_t{block[4 * i + 2]} << 8U |
           std::uint32_t{block[4 * i + 3]};
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3U);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10U);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kSha256[i] + w[i];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t size = bytes.size();
  const std::size_t used = length_ % 64;
  length_ += size;
  if (used > 0) {
    const std::size_t take = std::min(size, 64 - used);
    std::memcpy(buffer_.data() + used, data, take);
    if (used + take < 64) return;
    compress(buffer_.data());
    data += take;
    size -= take;
  }
  for (; size >= 64; data += 64, size -= 64) compress(data);
  if (size > 0) std::memcpy(buffer_.data(), data, size);
}

void Sha256::update(std::string_view text) noexcept { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<std::uint8_t, 32> Sha256::digest() noexcept {
  const std::uint64_t bits = length_ * 8;
  const std::size_t used = length_ % 64;
  std::array<std::byte, 72> tail{};
  tail[0] = std::byte{0x80};
  const std::size_t padding = (used < 56 ? 56 : 120) - used;
  for (std::size_t i = 0; i < 8; ++i) tail[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(std::span(tail.data(), padding + 8));
  std::array<std::uint8_t, 32> result{};
  for (std::size_t i = 0; i < 32; ++i) result[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return result;
}

std::string Sha256::hex() noexcept {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest()) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace millrace
