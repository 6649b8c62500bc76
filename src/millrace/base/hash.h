// CRC32C (Castagnoli, RFC 3720) detects changed data; SHA-256 (FIPS 180-4, by OpenSSL) identifies data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct SHA256state_st;  // OpenSSL's SHA256_CTX

namespace millrace {

// Returns the CRC32C, continued from `crc` (0 at the beginning), so crc32c(b, crc32c(a)) = crc32c(a ++ b). Uses SSE4.2 where the
// CPU has it.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

// Sets crcs[i] to the crc32c of block i. Each block has `block` bytes, a multiple of 8; the last block may be shorter. Computes
// the checksums of three blocks at once, because within one checksum each step must wait for the step before.
void crc32c_blocks(std::span<const std::byte> bytes, std::size_t block, std::span<std::uint32_t> crcs) noexcept;

namespace detail {
// Returns the same number as crc32c(), but does not use SSE4.2. It is for CPUs that lack SSE4.2, and for tests.
[[nodiscard]] std::uint32_t crc32c_without_sse(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;
}  // namespace detail

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  [[nodiscard]] std::array<std::uint8_t, 32> digest();  // ends the computation; no bytes can be added afterwards
  [[nodiscard]] std::string hex();                      // returns 64 lower-case digits; ends the computation

 private:
  struct Free {
    void operator()(SHA256state_st* state) const noexcept;
  };
  std::unique_ptr<SHA256state_st, Free> state_;  // null once the digest was returned
};

}  // namespace millrace
