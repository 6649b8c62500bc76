// What the numbers of an array are like: least, greatest, mean, spread, and how many are none. Any array, piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/json.h"

namespace millrace {

// Of a complex number its magnitude is looked at. Least, greatest, mean and deviation are of the finite values.
struct ValueSummary {
  DType dtype = DType::f32;
  std::int64_t count = 0;       // all elements
  std::int64_t nans = 0;        // of a complex number: either part
  std::int64_t infinities = 0;  // of a complex number: either part, and none is NaN
  Json least, greatest;         // integers of integers and bool, exact; null = there is no finite value
  double mean = 0;              // NaN = there is no finite value
  double deviation = 0;         // square root of the mean of the squared distances from the mean, as numpy.std; NaN likewise
  // Different values, of integers and bool; nullopt = more than kMostDistinct, or not counted.
  std::optional<std::int64_t> distinct;

  [[nodiscard]] bool is_whole() const noexcept;  // integers or bool
  [[nodiscard]] std::int64_t finite() const noexcept { return count - nans - infinities; }
};

inline constexpr std::int64_t kMostDistinct = 65536;

// Takes an array in pieces of any length; memory is bounded: some kilobytes, for integers 1.1 MB. Sums are taken in double,
// block by block about each block's mean, so that neither many values nor a large mean cost digits; where a sum of doubles
// overflows, mean and deviation are infinite. One thread.
class ValueStats {
 public:
  explicit ValueStats(DType dtype);
  // Whole elements in this machine's byte order, at any address.
  void add(std::span<const std::byte> elements);
  [[nodiscard]] ValueSummary summary() const;

 private:
  template <class T>
  void add_whole(std::span<const std::byte> elements);
  template <class Convert>
  void add_real(std::span<const std::byte> elements, std::size_t width, Convert value_at);
  void take_block(std::span<const double> block);
  void note_distinct(std::uint64_t key);

  DType dtype_;
  std::int64_t count_ = 0, nans_ = 0, infinities_ = 0;
  std::int64_t taken_ = 0;  // finite values that mean and squares hold
  double mean_ = 0, squares_ = 0;
  double least_ = 0, greatest_ = 0;  // of reals, once taken_ > 0
  template <class T>
  struct Bounds {
    T least = 0, greatest = 0;
  };
  std::tuple<Bounds<std::int64_t>, Bounds<std::uint64_t>> bounds_;  // of whole numbers, with and without a sign; likewise
  std::vector<std::uint64_t> table_;  // of different values, open addressing; a key's place is free where used_ says so
  std::vector<bool> used_;
  std::int64_t distinct_ = 0;  // kMostDistinct + 1 = too many
};

// The summary of an array at once.
[[nodiscard]] ValueSummary summary_of(DType dtype, std::span<const std::byte> elements);

}  // namespace millrace
