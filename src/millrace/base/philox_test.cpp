#include "millrace/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

// The vectors published with the paper's code.
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0U, ~0U, ~0U, ~0U}, ~0ULL), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, AStreamIsItsBlocksInOrderAndCanBeEnteredAnywhere) {
  Philox stream(42);
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 12; ++i) numbers.push_back(stream());
  const PhiloxBlock second = philox4x32({1, 0, 0, 0}, 42);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(numbers[4 + i], second[i]);
  Philox late(42, 7);
  for (std::size_t i = 7; i < 12; ++i) EXPECT_EQ(late(), numbers[i]);
}

TEST(Philox, KeysDependOnEveryWordAndTheirOrder) {
  EXPECT_NE(make_key(1, 2, 3), make_key(1, 3, 2));
  EXPECT_NE(make_key(1, 0), make_key(1));
  EXPECT_NE(make_key(0, 0), make_key(0, 0, 0));
  EXPECT_EQ(make_key(1, 2), make_key(1, std::int64_t{2}));
}

TEST(Philox, UniformHasItsMoments) {
  Philox stream(make_key(7));
  double sum = 0;
  double square = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    square += u * u;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(square / kCount, 1.0 / 3, 0.005);
}

TEST(Philox, NormalHasItsMoments) {
  Philox stream(make_key(8));
  double sum = 0;
  double square = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double z = stream.normal();
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    square += z * z;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(square / kCount, 1.0, 0.02);
}

TEST(Philox, BelowIsEvenAndStaysBelow) {
  Philox stream(make_key(9));
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[stream.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(stream.below(1), 0U);
  const std::uint64_t large = (1ULL << 63U) + 1;
  int in_upper_half = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t draw = stream.below(large);
    ASSERT_LT(draw, large);
    in_upper_half += draw > large / 2 ? 1 : 0;
  }
  EXPECT_NEAR(in_upper_half, 500, 100);
}

}  // namespace
}  // namespace millrace
