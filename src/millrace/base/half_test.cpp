#include "millrace/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace millrace {
namespace {

// Compares all 65,536 values with the definition of IEEE 754.
TEST(Half, EveryOneIsTheNumberOfItsDefinition) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = of_half(static_cast<std::uint16_t>(bits));
    const bool negative = bits >= 0x8000U;
    const int exponent = static_cast<int>(bits >> 10U & 31U);
    const auto fraction = static_cast<double>(bits & 1023U);
    ASSERT_EQ(std::signbit(value), negative) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value) >> 13U & 1023U, bits & 1023U) << "its bits are kept";
      continue;
    }
    const double size = exponent == 31  ? HUGE_VAL
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1 + fraction / 1024, exponent - 15);
    ASSERT_EQ(static_cast<double>(std::abs(value)), size) << bits;
  }
}

TEST(Half, KnownNumbers) {
  EXPECT_EQ(of_half(0x3C00), 1.0F);
  EXPECT_EQ(of_half(0xC000), -2.0F);
  EXPECT_EQ(of_half(0x7BFF), 65504.0F);
  EXPECT_EQ(of_half(0x0001), 0x1p-24F);
  EXPECT_EQ(of_half(0x3555), 0.333251953125F);
}

}  // namespace
}  // namespace millrace
