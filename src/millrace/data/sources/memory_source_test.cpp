#include "millrace/data/sources/memory_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "millrace/base/error.h"

namespace millrace::data {
namespace {

// For rows of up to 600 bytes, the fast paths and the general path must give the same bytes.
TEST(MemorySource, gathers_rows_of_any_size) {
  for (std::size_t bytes = 1; bytes <= 600; bytes += bytes < 70 ? 1 : 37) {
    constexpr std::size_t kRows = 7;
    std::vector<std::uint8_t> values(bytes * kRows);
    std::iota(values.begin(), values.end(), std::uint8_t{1});
    std::vector<MemoryArray> arrays;
    arrays.push_back(memory_array("x", {static_cast<std::int64_t>(bytes)}, values));
    const MemorySource source(std::move(arrays));
    ASSERT_EQ(source.size(), 7);
    const std::vector<std::int64_t> indices = {6, 0, 3, 3};
    std::vector<std::uint8_t> out(bytes * indices.size() + 1, 0xEE);
    auto* data = reinterpret_cast<std::byte*>(out.data());
    source.read(indices, Rows{{&data, 1}}, ReadRandom(0, 0, indices));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      ASSERT_EQ(std::memcmp(out.data() + i * bytes, values.data() + static_cast<std::size_t>(indices[i]) * bytes, bytes), 0);
    }
    ASSERT_EQ(out.back(), 0xEE) << "nothing is written past the last row";
  }
}

TEST(MemorySource, has_the_fields_of_its_arrays_and_a_fingerprint_of_their_bytes) {
  const auto make = [](float last) {
    std::vector<MemoryArray> arrays;
    arrays.push_back(memory_array<float>("x", {2}, {1, 2, 3, last}));
    arrays.push_back(memory_array<std::int64_t>("y", {}, {5, 6}));
    return MemorySource(std::move(arrays));
  };
  const MemorySource source = make(4);
  EXPECT_EQ(source.fields()[0], (Field{"x", DType::f32, {2}}));
  EXPECT_EQ(source.fields()[1], (Field{"y", DType::i64, {}}));
  EXPECT_EQ(source.fingerprint(), make(4).fingerprint());
  EXPECT_NE(source.fingerprint(), make(5).fingerprint());
  EXPECT_GT(source.samples_per_ticket(), 1000);
}

TEST(MemorySource, arrays_that_do_not_fit_are_named) {
  const auto what = [](std::vector<MemoryArray> arrays) -> std::string {
    try {
      MemorySource source(std::move(arrays));
    } catch (const DataError& error) {
      return error.message().what;
    }
    return "";
  };
  EXPECT_EQ(what({memory_array<float>("x", {2}, {1, 2, 3})}),
            "array \"x\" has 12 bytes, which is not a whole number of samples [2] of f32");
  EXPECT_EQ(what({memory_array<float>("x", {2}, {1, 2, 3, 4}), memory_array<float>("y", {}, {1})}),
            "array \"y\" holds 1 samples, \"x\" holds 2");
}

}  // namespace
}  // namespace millrace::data
