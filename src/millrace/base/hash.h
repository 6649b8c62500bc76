// CRC32C (Castagnoli, RFC 3720) for "is this the data we wrote", SHA-256 (FIPS 180-4) for identities.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

// Continues from `crc` (0 to begin), so crc32c(b, crc32c(a)) = crc32c(a ++ b). Uses SSE4.2 where the CPU has it.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

namespace detail {
// The same number on any CPU; for tests and CPUs without SSE4.2.
[[nodiscard]] std::uint32_t crc32c_without_sse(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;
}  // namespace detail

class Sha256 {
 public:
  Sha256() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept;
  [[nodiscard]] std::array<std::uint8_t, 32> digest() noexcept;  // ends the computation
  [[nodiscard]] std::string hex() noexcept;                      // 64 lower-case digits; ends the computation

 private:
  void compress(const std::uint8_t* block) noexcept;
  std::array<std::uint32_t, 8> state_{};
  std::array<std::uint8_t, 64> buffer_{};
  std::uint64_t length_ = 0;
};

}  // namespace millrace
