// Maps the positions of an epoch to samples, and batches to positions. Pure functions with O(1) memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace::data::detail {

// A permutation of [0, size) that a key selects: a Feistel network over the next power of two, repeated until the result is below
// size. Positions can be asked for in any order. The same key gives the same order on every machine.
class Order {
 public:
  explicit Order(std::int64_t size) noexcept : size_(size) {}  // makes the order in which position i is sample i
  Order(std::int64_t size, std::uint64_t key) noexcept;        // makes the order that is shuffled by `key`

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  // Writes the samples at the positions first, first + 1, ...; all positions are in [0, size).
  void fill(std::int64_t first, std::span<std::int64_t> out) const noexcept;
  [[nodiscard]] std::int64_t operator[](std::int64_t position) const noexcept;

 private:
  // Luby and Rackoff prove for this number of rounds that the order can't be distinguished from a random one.
  static constexpr std::size_t kRounds = 4;
  [[nodiscard]] std::uint64_t permute(std::uint64_t x) const noexcept;

  std::int64_t size_;
  bool shuffled_ = false;
  unsigned right_bits_ = 0;
  std::uint64_t left_mask_ = 0;
  std::uint64_t right_mask_ = 0;
  std::array<std::uint64_t, kRounds> keys_{};
};

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// How a data set is cut into batches. A global batch is world_size * batch_size positions; rank r gets the r-th part. The last
// global batch may have fewer positions. Its m positions are given to the w ranks in order: m / w to each rank, and one more to
// each of the first m % w ranks. So every rank has the same number of batches, some with zero rows if m < w. With drop_last
// that last batch is left out.
struct BatchSlices {
  std::int64_t size = 0;
  std::int64_t batch_size = 1;
  std::int64_t world_size = 1;
  bool drop_last = false;

  [[nodiscard]] std::int64_t batches() const noexcept;
  // Returns the positions of `rank` in a batch. The range is empty for a batch after the last one of this data set, if other
  // data sets are longer.
  [[nodiscard]] RowRange slice(std::int64_t batch, std::int64_t rank) const noexcept;
};

}  // namespace millrace::data::detail
