#include "millrace/train/step/feed.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

Batch two_field_groups() {
  std::vector<Group> groups(2);
  groups[0] = {
      .name = "a", .fields = {{"x", at::ones({2, 3})}, {"label", at::arange(2)}}, .positions = {4, 5}, .indices = {40, 50}};
  groups[1] = {.name = "b", .fields = {{"x", at::ones({1, 7})}}, .positions = {6}, .indices = {60}};
  return Batch(std::move(groups), {.split = Split::validation, .epoch = 2, .index = 3});
}

TEST(MovedTo, EveryFieldOfEveryGroupComesToTheDevice) {
  const Batch moved = moved_to(two_field_groups(), at::kMeta);
  ASSERT_EQ(moved.groups().size(), 2U);
  std::size_t fields = 0;
  for (const Group& group : moved.groups()) {
    for (const auto& [name, field] : group.fields) {
      EXPECT_TRUE(field.is_meta()) << group.name << " " << name;
      ++fields;
    }
  }
  EXPECT_EQ(fields, 3U);
  EXPECT_EQ(to_text(moved), to_text(two_field_groups()));
  EXPECT_EQ(moved.groups()[0].positions, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(moved.groups()[1].indices, std::vector<std::int64_t>{60});
  EXPECT_EQ(to_text(moved.origin()), "validation batch 3");
}

TEST(MovedTo, WhatIsThereAlreadyIsNotCopied) {
  Batch batch = two_field_groups();
  const at::Tensor x = batch.groups()[0].fields.at("x");
  const Batch moved = moved_to(std::move(batch), at::kCPU);
  EXPECT_TRUE(moved.groups()[0].fields.at("x").is_alias_of(x));
}

}  // namespace
}  // namespace millrace
