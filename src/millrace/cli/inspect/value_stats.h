// Summarises the numbers of an array that comes in pieces: least, greatest, mean, deviation, and how many are NaN or infinite.
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

// Least, greatest, mean and deviation cover only the finite values. For complex numbers, these are the figures of the
// magnitudes.
struct ValueSummary {
  DType dtype = DType::f32;
  std::int64_t count = 0;       // number of all elements
  std::int64_t nans = 0;        // a complex number is counted if one of its parts is NaN
  std::int64_t infinities = 0;  // a complex number is counted if one of its parts is infinite and neither is NaN
  Json least, greatest;         // exact integers for integers and bool; null = there is no finite value
  double mean = 0;              // NaN = there is no finite value
  double deviation = 0;         // root of the mean squared distance from the mean, as numpy.std computes it; NaN = there is no
                                // finite value
  // Number of different values, for integers and bool; nullopt = more than kMostDistinct, or another dtype.
  std::optional<std::int64_t> distinct;

  [[nodiscard]] bool is_whole() const noexcept;  // true if the dtype is an integer or bool
  [[nodiscard]] std::int64_t finite() const noexcept { return count - nans - infinities; }
};

inline constexpr std::int64_t kMostDistinct = 65536;

// Takes an array in pieces of any length. Needs some kilobytes of memory; for integers, 1.1 MB. Squared distances from the mean
// of each block are summed in double, so that neither many values nor a large mean cost precision. If a sum of doubles
// overflows, mean and deviation are infinite. Not thread-safe.
class ValueStats {
 public:
  explicit ValueStats(DType dtype);
  // Adds whole elements in this machine's byte order. They need not be aligned.
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
  std::int64_t taken_ = 0;  // number of finite values in mean_ and squares_
  double mean_ = 0, squares_ = 0;
  double least_ = 0, greatest_ = 0;  // extremes of real numbers; valid if taken_ > 0
  template <class T>
  struct Bounds {
    T least = 0, greatest = 0;
  };
  std::tuple<Bounds<std::int64_t>, Bounds<std::uint64_t>> bounds_;  // extremes of signed and of unsigned integers; valid if
                                                                    // taken_ > 0
  std::vector<std::uint64_t> table_;  // hash table of the different values (open addressing); a slot is free unless used_ is set
  std::vector<bool> used_;
  std::int64_t distinct_ = 0;  // number of different values; kMostDistinct + 1 = too many to count
};

// The summary of an array that is in memory as a whole.
[[nodiscard]] ValueSummary summary_of(DType dtype, std::span<const std::byte> elements);

}  // namespace millrace
