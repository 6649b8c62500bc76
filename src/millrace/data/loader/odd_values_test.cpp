#include "millrace/data/loader/odd_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "millrace/base/error.h"

namespace millrace::data {
namespace {

// Twenty samples, each with 2 x 3 floats and a number. Samples 7 and 8 hold values that are not finite; sample 9 can't be read.
class SickSource final : public Source {
 public:
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return 20; }
  [[nodiscard]] std::string fingerprint() const override { return "sick"; }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return "row " + std::to_string(index) + " of a.csv"; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == 9) throw DataError({"row 9 is cut", "a.csv", ""});
      auto* x = reinterpret_cast<float*>(rows.row(0, i, fields_[0].bytes()));
      for (int k = 0; k < 6; ++k) x[k] = static_cast<float>(random(i).uniform());
      if (indices[i] == 7) x[4] = x[5] = std::nanf("");
      if (indices[i] == 8) x[0] = -std::numeric_limits<float>::infinity();
      std::memcpy(rows.row(1, i, sizeof(std::int64_t)), &indices[i], sizeof(std::int64_t));
    }
  }

 private:
  std::vector<Field> fields_ = {{"x", DType::f32, {2, 3}}, {"number", DType::i64, {}}};
};

TEST(OddValues, OfABatchThatIsReadAgainAreNamedBySampleFieldAndPlace) {
  LoaderOptions options{.batch_size = 10, .shuffle = false, .readers = 0, .bad_samples = BadSamples::skip, .max_bad_fraction = 1};
  Loader loader(single(std::make_shared<SickSource>()), options);
  const auto first = loader.next();
  const HostBatch again = loader.read_again(0, 0);
  ASSERT_EQ(again.groups[0].positions, first->groups[0].positions) << "without sample 9";
  EXPECT_EQ(std::memcmp(again.groups[0].data[0], first->groups[0].data[0], std::size_t{9} * 24), 0)
      << "what is random is the same";
  std::vector<std::string> lines;
  for (const NotFinite& found : not_finite_in(again)) {
    const std::int64_t sample = again.groups[found.group].indices[static_cast<std::size_t>(found.row)];
    lines.push_back(loader.sample_label(found.group, sample) + ", " + to_text(found));
  }
  EXPECT_THAT(lines,
              testing::ElementsAre("sample 7 (row 7 of a.csv), field x: 2 of 6 values are not finite, the first, nan, at [1,1]",
                                   "sample 8 (row 8 of a.csv), field x: 1 of 6 values is not finite, the first, -inf, at [0,0]"));
  const auto second = loader.next();
  EXPECT_EQ(second->index, 1U) << "the loader goes on where it was";
  EXPECT_EQ(loader.counters().bad_samples, 1U) << "what is read again does not count";
  EXPECT_EQ(loader.counters().samples, 19U);
  EXPECT_THAT(not_finite_in(*second), testing::IsEmpty());
}

template <class T>
std::optional<Absurd> absurd(const std::vector<T>& values, DType dtype, Shape row) {
  const std::int64_t of_row = *element_count(row);
  const auto rows = static_cast<std::int64_t>(values.size() * sizeof(T) / size_of(dtype)) / of_row;
  return absurd_in(
      {.dtype = dtype, .shape = std::move(row), .rows = rows, .data = reinterpret_cast<const std::byte*>(values.data())});
}

TEST(OddValues, AMagnitudeFarBeyondTheMedianIsFound) {
  std::vector<float> values(1000, 0);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = 0.5F + static_cast<float>(i) * 1e-3F;
  EXPECT_FALSE(absurd(values, DType::f32, {10, 10})) << "zeros do not count for the median";
  values[234] = -3e6F;
  auto found = absurd(values, DType::f32, {10, 10});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row, 2);
  EXPECT_EQ(found->at, (Shape{3, 4}));
  EXPECT_EQ(found->value, 3e6);
  EXPECT_NEAR(found->usual, 1.0, 0.01);
  EXPECT_FALSE(absurd(std::vector<float>(100, 0), DType::f32, {10})) << "an empty field";
  EXPECT_FALSE(absurd(std::vector<std::int64_t>{1, 1, 1'000'000'000}, DType::i64, {})) << "numbers that count";
  EXPECT_FALSE(absurd(std::vector<double>{1, std::nan(""), 2}, DType::f64, {})) << "NaN may mark what is missing";
}

TEST(OddValues, AnInfiniteValueIsFoundInEachTypeOfFloat) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto is_infinite = [](const std::optional<Absurd>& found, const Shape& at) {
    return found && std::isinf(found->value) && found->usual == 0 && found->row == 1 && found->at == at;
  };
  EXPECT_TRUE(is_infinite(absurd(std::vector<double>{1, 2, 3, kInfinite}, DType::f64, {2}), {1}));
  EXPECT_TRUE(is_infinite(
      absurd(std::vector<float>{1, 2, 3, 4, 5, -std::numeric_limits<float>::infinity(), 7, 8}, DType::c64, {2}), {0}));
  EXPECT_TRUE(is_infinite(absurd(std::vector<std::uint16_t>{0x3C00, 0x7C00}, DType::f16, {}), {}));
  EXPECT_TRUE(is_infinite(absurd(std::vector<std::uint16_t>{0x3F80, 0x7F80}, DType::bf16, {}), {}));
}

}  // namespace
}  // namespace millrace::data
