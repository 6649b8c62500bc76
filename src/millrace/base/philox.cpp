#include "millrace/base/philox.h"

#include <cmath>
#include <numbers>

namespace millrace {

std::uint64_t Philox::below(std::uint64_t bound) noexcept {
  // Rejects random numbers below 2^32 mod `bound` (or 2^64 mod `bound`), so that every remainder is equally likely. For a
  // `bound` that fits 32 bits, one 32-bit random number at a time is enough.
  if (bound <= 0xFFFFFFFFU) {
    const auto small = static_cast<std::uint32_t>(bound);
    const std::uint32_t reject = (0U - small) % small;  // 2^32 mod bound
    for (;;) {
      const std::uint32_t draw = (*this)();
      if (draw >= reject) return draw % small;
    }
  }
  const std::uint64_t reject = (0ULL - bound) % bound;
  for (;;) {
    const std::uint64_t high = (*this)();
    const std::uint64_t draw = high << 32U | (*this)();
    if (draw >= reject) return draw % bound;
  }
}

double Philox::normal() noexcept {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));  // 1 - u is in (0, 1], so the logarithm of 0 is never taken
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint32_t Philox::poisson(double mean, std::uint32_t most) noexcept {
  const double place = uniform();
  double chance = std::exp(-mean);
  double below = chance;
  std::uint32_t count = 0;
  while (place >= below && count < most) {
    ++count;
    chance *= mean / count;
    below += chance;
  }
  return count;
}

}  // namespace millrace
