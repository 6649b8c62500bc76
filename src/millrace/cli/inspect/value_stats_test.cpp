#include "millrace/cli/inspect/value_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/philox.h"

namespace millrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

struct Reference {
  long double least = 0, greatest = 0, mean = 0, deviation = 0;
};

// The summary of the finite values as numpy computes it, in long double and in two passes.
template <class T>
Reference reference_of(const std::vector<T>& values) {
  std::vector<long double> finite;
  for (const T value : values) {
    if (std::isfinite(static_cast<long double>(value))) finite.push_back(static_cast<long double>(value));
  }
  Reference result{.least = *std::ranges::min_element(finite), .greatest = *std::ranges::max_element(finite)};
  for (const long double value : finite) result.mean += value / static_cast<long double>(finite.size());
  for (const long double value : finite) result.deviation += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(result.deviation / static_cast<long double>(finite.size()));
  return result;
}

// Compares with the reference; the array is cut into pieces at any place.
template <class T>
void expect_as_reference(DType dtype, const std::vector<T>& values, double tolerance) {
  const Reference expected = reference_of(values);
  for (const std::size_t piece : {values.size(), std::size_t{1}, std::size_t{4097}}) {
    ValueStats stats(dtype);
    for (std::size_t at = 0; at < values.size(); at += piece)
      stats.add(std::as_bytes(std::span(values).subspan(at, std::min(piece, values.size() - at))));
    const ValueSummary summary = stats.summary();
    EXPECT_EQ(summary.count, static_cast<std::int64_t>(values.size()));
    EXPECT_EQ(summary.least.get<T>(), static_cast<T>(expected.least)) << name_of(dtype);
    EXPECT_EQ(summary.greatest.get<T>(), static_cast<T>(expected.greatest)) << name_of(dtype);
    const double scale = static_cast<double>(std::max({std::abs(expected.mean), expected.deviation, 1e-300L}));
    EXPECT_NEAR(summary.mean / scale, static_cast<double>(expected.mean) / scale, tolerance) << name_of(dtype);
    EXPECT_NEAR(summary.deviation, static_cast<double>(expected.deviation), tolerance * static_cast<double>(expected.deviation))
        << name_of(dtype);
  }
}

template <class T>
std::vector<T> whole_numbers(std::size_t count) {
  Philox random(make_key(1, sizeof(T)));
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(std::uint64_t{random()} << 32U | random());
  return values;
}

std::vector<double> reals(std::size_t count, double middle) {
  Philox random(make_key(2, count));
  std::vector<double> values(count);
  for (double& value : values) value = middle + static_cast<double>(random()) / 4e9;
  return values;
}

TEST(ValueStats, WholeNumbersOfEveryWidth) {
  constexpr std::size_t kCount = 10'001;
  constexpr double kTolerance = 1e-13;
  expect_as_reference(DType::u8, whole_numbers<std::uint8_t>(kCount), kTolerance);
  expect_as_reference(DType::i8, whole_numbers<std::int8_t>(kCount), kTolerance);
  expect_as_reference(DType::i16, whole_numbers<std::int16_t>(kCount), kTolerance);
  expect_as_reference(DType::u16, whole_numbers<std::uint16_t>(kCount), kTolerance);
  expect_as_reference(DType::i32, whole_numbers<std::int32_t>(kCount), kTolerance);
  expect_as_reference(DType::u32, whole_numbers<std::uint32_t>(kCount), kTolerance);
  expect_as_reference(DType::i64, whole_numbers<std::int64_t>(kCount), kTolerance);
  expect_as_reference(DType::u64, whole_numbers<std::uint64_t>(kCount), kTolerance);
}

TEST(ValueStats, RealsAlsoWithAMeanThatHidesTheirSpread) {
  std::vector<double> values = reals(50'000, 0);
  expect_as_reference(DType::f64, values, 1e-13);
  expect_as_reference(DType::f64, reals(50'000, 1e9), 1e-6);
  for (const std::size_t at : {std::size_t{0}, std::size_t{77}, std::size_t{49'999}}) values[at] = at == 77 ? -kInf : kNaN;
  expect_as_reference(DType::f64, values, 1e-13);
  const std::vector<float> floats(values.begin(), values.end());
  expect_as_reference(DType::f32, floats, 1e-13);
  const ValueSummary summary = summary_of(DType::f32, bytes_of(floats));
  EXPECT_EQ(summary.nans, 2);
  EXPECT_EQ(summary.infinities, 1);
  EXPECT_EQ(summary.finite(), 49'997);
  EXPECT_FALSE(summary.distinct);
}

TEST(ValueStats, LeastAndGreatestOfWholeNumbersAreExact) {
  constexpr std::int64_t kAbove = (std::int64_t{1} << 53U) + 1;  // double can't represent it
  ValueSummary summary = summary_of(DType::i64, bytes_of(std::vector<std::int64_t>{kAbove, -kAbove, kAbove - 2}));
  EXPECT_EQ(summary.least, -kAbove);
  EXPECT_EQ(summary.greatest, kAbove);
  EXPECT_EQ(summary.distinct, 3);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  summary = summary_of(DType::u64, bytes_of(std::vector<std::uint64_t>{most, most - 1, most}));
  EXPECT_EQ(summary.least.get<std::uint64_t>(), most - 1);
  EXPECT_EQ(summary.greatest.get<std::uint64_t>(), most);
  EXPECT_EQ(summary.distinct, 2);
  summary = summary_of(DType::i64, bytes_of(std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}));
  EXPECT_EQ(summary.least, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(summary.deviation, 0);
}

TEST(ValueStats, NothingAndNothingFinite) {
  ValueSummary summary = summary_of(DType::f32, {});
  EXPECT_EQ(summary.count, 0);
  EXPECT_TRUE(summary.least.is_null());
  EXPECT_TRUE(std::isnan(summary.mean));
  summary = summary_of(DType::i32, {});
  EXPECT_TRUE(summary.greatest.is_null());
  EXPECT_EQ(summary.distinct, 0);
  summary = summary_of(DType::f64, bytes_of(std::vector<double>{kNaN, kInf, -kInf}));
  EXPECT_TRUE(summary.least.is_null());
  EXPECT_TRUE(std::isnan(summary.deviation));
  EXPECT_EQ(summary.nans, 1);
  EXPECT_EQ(summary.infinities, 2);
}

TEST(ValueStats, TruthValuesAreZeroAndOneWhateverTheirByte) {
  const ValueSummary summary = summary_of(DType::boolean, bytes_of(std::vector<std::uint8_t>{0, 1, 255, 1}));
  EXPECT_EQ(summary.least, 0U);
  EXPECT_EQ(summary.greatest, 1U);
  EXPECT_EQ(summary.mean, 0.75);
  EXPECT_EQ(summary.distinct, 2);
}

TEST(ValueStats, HalfPrecision) {
  // The numbers are 1.5, -2, the least subnormal, the greatest finite number, infinity and NaN.
  ValueSummary summary =
      summary_of(DType::f16, bytes_of(std::vector<std::uint16_t>{0x3E00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0xFE01}));
  EXPECT_EQ(summary.least, -2.0);
  EXPECT_EQ(summary.greatest, 65504.0);
  EXPECT_EQ(summary.nans, 1);
  EXPECT_EQ(summary.infinities, 1);
  EXPECT_EQ(summary_of(DType::f16, bytes_of(std::vector<std::uint16_t>{0x0001})).mean, std::ldexp(1.0, -24));
  summary = summary_of(DType::bf16, bytes_of(std::vector<std::uint16_t>{0x3FC0, 0xC000, 0x7F80, 0x7FC0}));
  EXPECT_EQ(summary.least, -2.0);
  EXPECT_EQ(summary.greatest, 1.5);
  EXPECT_EQ(summary.mean, -0.25);
  EXPECT_EQ(summary.nans + summary.infinities, 2);
}

TEST(ValueStats, OfComplexNumbersTheMagnitude) {
  const std::vector<std::complex<float>> values = {
      {3, -4}, {0, 1}, {static_cast<float>(kInf), static_cast<float>(kNaN)}, {static_cast<float>(-kInf), 0}};
  ValueSummary summary = summary_of(DType::c64, bytes_of(values));
  EXPECT_EQ(summary.least, 1.0);
  EXPECT_EQ(summary.greatest, 5.0);
  EXPECT_EQ(summary.mean, 3.0);
  EXPECT_EQ(summary.deviation, 2.0);
  EXPECT_EQ(summary.nans, 1);
  EXPECT_EQ(summary.infinities, 1);
  EXPECT_EQ(summary_of(DType::c128, bytes_of(std::vector<std::complex<double>>{{0, -2}})).least, 2.0);
}

TEST(ValueStats, DifferentValuesAreCountedUpToABound) {
  std::vector<std::int32_t> values;
  for (std::int32_t i = 0; i < kMostDistinct; ++i) values.insert(values.end(), {i * 30'011, i * 30'011, 0});
  EXPECT_EQ(summary_of(DType::i32, bytes_of(values)).distinct, kMostDistinct);
  values.push_back(-1);
  EXPECT_FALSE(summary_of(DType::i32, bytes_of(values)).distinct);
  const std::vector<std::int16_t> some = whole_numbers<std::int16_t>(5'000);
  EXPECT_EQ(summary_of(DType::i16, bytes_of(some)).distinct, std::set<std::int16_t>(some.begin(), some.end()).size());
}

}  // namespace
}  // namespace millrace
