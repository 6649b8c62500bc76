#include "millrace/cli/inspect/field_picture.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

namespace millrace::cli {
namespace {

SeenField field_of(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  SeenField field{.name = "x", .title = "x, batch 0", .values = at::full(shape, 3, at::kFloat).to(type)};
  if (field.values.numel() > 1 && type != at::kBool)
    field.values = at::arange(field.values.numel()).remainder(97).reshape(shape).to(type);
  for (std::int64_t row = 0; row < (shape.empty() ? 1 : shape[0]); ++row)
    field.samples.push_back("sample " + std::to_string(row));
  return field;
}

TEST(FieldPicture, EveryShapeOfEveryTypeHasOne) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {5},        {1},           {5, 1},        {5, 2},        {5, 6},        {7, 40},         {4, 3, 20},   {4, 20, 3},
      {4, 9, 12}, {4, 1, 9, 12}, {4, 3, 9, 12}, {4, 9, 12, 3}, {4, 5, 9, 12}, {3, 2, 6, 7, 8}, {70, 1, 4, 4}};
  for (const auto& shape : shapes) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kByte, at::kLong, at::kBool, at::kComplexFloat}) {
      const SeenField field = field_of(shape, type);
      const std::optional<Picture> picture = picture_of(field);
      ASSERT_TRUE(picture) << field.values.sizes() << ' ' << type;
      EXPECT_EQ(picture->name, "x");
      EXPECT_EQ(picture->rgb.size(), static_cast<std::size_t>(picture->width * picture->height * 3));
    }
  }
}

TEST(FieldPicture, NamesOfValuesAreWrittenBelowTheirCounts) {
  SeenField field = field_of({5}, at::kLong);
  const std::vector<std::uint8_t> plain = picture_of(field)->rgb;
  field.words.names = {"owl", "wren"};
  EXPECT_NE(picture_of(field)->rgb, plain);
}

// If the number of known axes is that of the field, their names, units and coordinates must be drawn.
TEST(FieldPicture, AxesThatAreKnownAreDrawn) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{7, 40}, {4, 3, 20}, {4, 9, 2}, {4, 5, 9, 12}, {3, 2, 6, 7, 8}}) {
    SeenField field = field_of(shape, at::kFloat);
    const std::vector<std::uint8_t> plain = picture_of(field)->rgb;
    for (std::size_t i = 1; i < shape.size(); ++i)
      field.words.axes.push_back({.label = "length", .unit = "mm", .first = 100, .step = -2.5});
    const std::vector<std::uint8_t> named = picture_of(field)->rgb;
    EXPECT_NE(plain, named) << shape.size();
    for (FieldAxis& axis : field.words.axes) axis.step = 0.5;
    EXPECT_NE(picture_of(field)->rgb, named) << shape.size();
    field.words.axes.pop_back();  // the axes no longer fit the shape of the field
    EXPECT_EQ(picture_of(field)->rgb, plain) << shape.size();
    field.description = "RAS";
    EXPECT_NE(picture_of(field)->rgb, plain) << shape.size();
  }
}

// Signals have a plot each, one below the other: six samples at most, whatever their channels.
TEST(FieldPicture, SignalsHaveAPlotEach) {
  const auto height = [](const std::vector<std::int64_t>& shape) { return picture_of(field_of(shape, at::kFloat))->height; };
  EXPECT_EQ(height({2, 40}), 2 * height({1, 40}));
  EXPECT_EQ(height({6, 1, 40}), 6 * height({1, 1, 40}));
  EXPECT_GT(height({9, 40}), height({6, 40})) << "the caption says that three are left out";
  EXPECT_LT(height({9, 40}), height({6, 40}) + height({1, 40}));
  SeenField field = field_of({3, 40}, at::kFloat);
  field.values[1].fill_(std::nan(""));
  EXPECT_LT(picture_of(field)->height, height({3, 40})) << "a signal without a finite value has none";
}

TEST(FieldPicture, ThereIsNoneOfNothing) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{}, {0}, {0, 3}, {4, 0, 3}, {1, 1, 1, 1, 1, 1}})
    EXPECT_FALSE(picture_of(field_of(shape, at::kFloat))) << shape.size();
  SeenField field = field_of({4, 1, 9, 9}, at::kFloat);
  field.values.fill_(std::nan(""));
  EXPECT_FALSE(picture_of(field));
  field.values[1][0][0][0] = 1;
  EXPECT_TRUE(picture_of(field));
}

}  // namespace
}  // namespace millrace::cli
