#include "millrace/data/loader/detail/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace millrace::data::detail {
namespace {

std::vector<std::int64_t> all(const Order& order) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(order.size()));
  order.fill(0, indices);
  return indices;
}

TEST(Order, is_a_bijection_for_every_small_size_and_many_keys) {
  for (std::int64_t size = 1; size <= 600; ++size) {
    for (std::uint64_t key = 0; key < 5; ++key) {
      std::vector<bool> seen(static_cast<std::size_t>(size));
      for (const std::int64_t index : all(Order(size, key))) {
        ASSERT_GE(index, 0);
        ASSERT_LT(index, size);
        ASSERT_FALSE(seen[static_cast<std::size_t>(index)]) << "size " << size << " key " << key;
        seen[static_cast<std::size_t>(index)] = true;
      }
    }
  }
}

TEST(Order, is_a_bijection_around_powers_of_two) {
  for (const std::int64_t size : {4095, 4096, 4097, 65535, 65536, 65537, 131071}) {
    std::vector<std::int64_t> indices = all(Order(size, 99));
    std::sort(indices.begin(), indices.end());
    for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(indices[static_cast<std::size_t>(i)], i);
  }
}

TEST(Order, any_position_can_be_asked_for) {
  const Order order(1000, 7);
  const std::vector<std::int64_t> whole = all(order);
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(order[i], whole[static_cast<std::size_t>(i)]);
  const Order huge((std::int64_t{1} << 45U) + 12345, 7);
  EXPECT_GE(huge[std::int64_t{1} << 45U], 0);
  EXPECT_LT(huge[std::int64_t{1} << 45U], huge.size());
}

TEST(Order, without_a_key_is_the_identity) { EXPECT_THAT(all(Order(5)), testing::ElementsAre(0, 1, 2, 3, 4)); }

TEST(Order, keys_give_different_orders) {
  EXPECT_NE(all(Order(100, 1)), all(Order(100, 2)));
  EXPECT_EQ(all(Order(100, 1)), all(Order(100, 1)));
}

// All 4! orders of four samples must be about equally frequent: chi-square with 23 degrees of freedom exceeds 54 once in 10,000.
TEST(Order, all_orders_of_four_are_equally_likely) {
  std::map<std::vector<std::int64_t>, int> counts;
  constexpr int kDraws = 24'000;
  for (std::uint64_t key = 0; key < kDraws; ++key) ++counts[all(Order(4, key))];
  ASSERT_EQ(counts.size(), 24U);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += std::pow(count - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi_square, 54.0);
}

// The position of a sample must be independent of its former position and of the positions of its neighbours.
TEST(Order, neighbours_are_scattered) {
  constexpr std::int64_t kSize = 20'000;
  for (std::uint64_t key = 0; key < 5; ++key) {
    const std::vector<std::int64_t> order = all(Order(kSize, key));
    double with_place = 0;
    double with_next = 0;
    const auto centred = [](std::int64_t x) { return static_cast<double>(x) - (kSize - 1) / 2.0; };
    for (std::int64_t i = 0; i < kSize; ++i) {
      const double here = centred(order[static_cast<std::size_t>(i)]);
      with_place += here * centred(i);
      with_next += here * centred(order[static_cast<std::size_t>((i + 1) % kSize)]);
    }
    const double variance = kSize * (static_cast<double>(kSize) * kSize - 1) / 12.0;
    EXPECT_LT(std::abs(with_place / variance), 0.035);  // five standard deviations
    EXPECT_LT(std::abs(with_next / variance), 0.035);
  }
}

TEST(BatchSlices, ranks_together_cover_every_position_once) {
  for (std::int64_t size = 1; size <= 40; ++size) {
    for (const std::int64_t batch_size : {1, 3, 8}) {
      for (const std::int64_t world : {1, 2, 3}) {
        const BatchSlices slices{size, batch_size, world, false};
        std::int64_t next = 0;
        for (std::int64_t batch = 0; batch < slices.batches(); ++batch) {
          for (std::int64_t rank = 0; rank < world; ++rank) {
            const RowRange range = slices.slice(batch, rank);
            ASSERT_EQ(range.first, next);
            ASSERT_LE(range.count, batch_size);
            next += range.count;
          }
        }
        ASSERT_EQ(next, size) << "batch " << batch_size << " world " << world;
        EXPECT_EQ(slices.slice(slices.batches(), 0).count, 0);
      }
    }
  }
}

TEST(BatchSlices, ragged_batch_is_dealt_evenly) {
  const BatchSlices slices{21, 4, 4, false};  // a global batch of 16 rows, then 5 rows over 4 ranks
  ASSERT_EQ(slices.batches(), 2);
  EXPECT_EQ(slices.slice(1, 0), (RowRange{16, 2}));
  EXPECT_EQ(slices.slice(1, 1), (RowRange{18, 1}));
  EXPECT_EQ(slices.slice(1, 3), (RowRange{20, 1}));
}

TEST(BatchSlices, drop_last_leaves_the_ragged_batch_out) {
  EXPECT_EQ((BatchSlices{21, 4, 4, true}.batches()), 1);
  EXPECT_EQ((BatchSlices{16, 4, 4, true}.batches()), 1);
  EXPECT_EQ((BatchSlices{15, 4, 4, true}.batches()), 0);
}

}  // namespace
}  // namespace millrace::data::detail
