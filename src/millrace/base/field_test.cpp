#include "millrace/base/field.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "millrace/base/error.h"

namespace millrace {
namespace {

TEST(DTypes, NamesAreUniqueAndSizesRight) {
  std::size_t total = 0;
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::c128); ++i) {
    const auto dtype = static_cast<DType>(i);
    names.emplace(name_of(dtype));
    total += size_of(dtype);
  }
  EXPECT_EQ(total, 71U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(name_of(DType::boolean), "bool");
  EXPECT_EQ(names.size(), 15U);
}

TEST(Shapes, CountElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4}), 12);
  EXPECT_EQ(element_count({3, -1}), std::nullopt);
  EXPECT_EQ(element_count({std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(element_count({std::int64_t{1} << 32, std::int64_t{1} << 31, 0}), 0);
}

TEST(Shapes, AsText) {
  EXPECT_EQ(to_text(Shape{}), "[]");
  EXPECT_EQ(to_text(Shape{32, 64, 64}), "[32,64,64]");
}

TEST(Fields, BytesOfASample) {
  EXPECT_EQ((Field{.name = "x", .dtype = DType::f64, .shape = {3, 5}}).bytes(), 120U);
  EXPECT_THROW(static_cast<void>(Field{.name = "x", .dtype = DType::f32, .shape = {-1}}.bytes()), InternalError);
}

}  // namespace
}  // namespace millrace
