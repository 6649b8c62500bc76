// Which sample stands at a position of an epoch, and which positions make up a batch. Pure functions, O(1) memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace::data::detail {

// A keyed bijection of [0, size): a Feistel network over the next power of two, walked until it lands inside. Any position can
// be asked for; the same key gives the same order everywhere.
class Order {
 public:
  explicit Order(std::int64_t size) noexcept : size_(size) {}  // identity
  Order(std::int64_t size, std::uint64_t key) noexcept;        // shuffled

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  // Positions first, first + 1, ... in [0, size).
  void fill(std::int64_t first, std::span<std::int64_t> out) const noexcept;
  [[nodiscard]] std::int64_t operator[](std::int64_t position) const noexcept;

 private:
  static constexpr std::size_t kRounds = 4;  // what Luby and Rackoff need for an order that can't be told from a random one
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

// How one data set is cut into batches. A global batch is world_size * batch_size positions; rank r has the r-th part of each.
// The last global batch may be ragged: its m positions are dealt in order, m / w to each rank and one more to the first m % w,
// so every rank has equally many batches (with zero rows where m < w). With drop_last the ragged batch is left out.
struct BatchSlices {
  std::int64_t size = 0;
  std::int64_t batch_size = 1;
  std::int64_t world_size = 1;
  bool drop_last = false;

  [[nodiscard]] std::int64_t batches() const noexcept;
  // Empty for a batch past the end: a data set of a group that is shorter than the others.
  [[nodiscard]] RowRange slice(std::int64_t batch, std::int64_t rank) const noexcept;
};

}  // namespace millrace::data::detail
