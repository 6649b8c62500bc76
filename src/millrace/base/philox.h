// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A number is a pure function of (key, counter). So there is no state to save, and threads and the order of calls do not matter.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

using PhiloxBlock = std::array<std::uint32_t, 4>;

[[nodiscard]] constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) noexcept {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

// SplitMix64 finaliser: a bijection on 64-bit words, used to turn words into keys.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

// Returns a key made from several words; their order matters.
template <class... Words>
[[nodiscard]] constexpr std::uint64_t make_key(std::uint64_t first, Words... rest) noexcept {
  std::uint64_t key = mix64(first);
  ((key = mix64(key ^ mix64(static_cast<std::uint64_t>(rest) + 0x632BE59BD9B4E019ULL))), ...);
  return key;
}

// A stream of numbers under one key, for code that draws one after the other (a sample's augmentation, make-data).
// Satisfies UniformRandomBitGenerator; copying copies the position.
class Philox {
 public:
  using result_type = std::uint32_t;
  explicit constexpr Philox(std::uint64_t key, std::uint64_t position = 0) noexcept : key_(key), position_(position) {}
  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return 0xFFFFFFFFU; }
  constexpr result_type operator()() noexcept {
    const std::uint64_t block = position_ / 4;
    if (block != cached_index_) {
      cached_ = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 0, 0}, key_);
      cached_index_ = block;
    }
    return cached_[position_++ % 4];
  }
  // Returns a number that is uniform in [0, 1), with 53 random bits.
  constexpr double uniform() noexcept {
    const std::uint64_t high = (*this)() >> 5U;
    const std::uint64_t low = (*this)() >> 6U;
    return static_cast<double>(high * 67108864U + low) * (1.0 / 9007199254740992.0);
  }
  // Returns an integer that is uniform in [0, bound), without modulo bias; bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept;
  // Returns a standard normal number (Box-Muller).
  double normal() noexcept;
  // Returns a Poisson count, no larger than `most`. `mean` is 0 to 700. The count is found by inverting the distribution at one
  // uniform number, so the work grows with the mean.
  std::uint32_t poisson(double mean, std::uint32_t most) noexcept;

 private:
  std::uint64_t key_;
  std::uint64_t position_;
  std::uint64_t cached_index_ = ~std::uint64_t{0};
  PhiloxBlock cached_{};
};

}  // namespace millrace
