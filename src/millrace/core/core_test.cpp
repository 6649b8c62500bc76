#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/core/agreement.h"
#include "millrace/core/batch.h"
#include "millrace/core/random.h"
#include "tests/support/refusal.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Batch, OfFieldsCountsRowsAndPositions) {
  const Batch batch(Tensors{{"input", at::zeros({3, 2})}, {"target", at::zeros({3})}});
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_THAT(batch.groups().front().positions, ElementsAre(0, 1, 2));
  EXPECT_EQ(batch["input"].dim(), 2);
  EXPECT_TRUE(batch.has("target"));
  EXPECT_FALSE(batch.has("Target"));
}

TEST(Batch, MissingFieldNamesTheOnesThereAre) {
  const Batch batch(Tensors{{"input", at::zeros({3})}, {"target", at::zeros({3})}});
  EXPECT_THAT(refusal([&] { (void)batch["mask"]; }), HasSubstr("the batch has no field \"mask\"; its fields: input, target"));
  EXPECT_THAT(refusal([&] { (void)batch["imput"]; }), HasSubstr("next     did you mean \"input\"?"));
}

TEST(Batch, UnequalRowsAreRefused) {
  const auto make = [] { (void)Batch(Tensors{{"a", at::zeros({3})}, {"b", at::zeros({4})}}); };
  EXPECT_THAT(refusal(make), HasSubstr("field \"b\" of a batch has 4 rows, \"a\" has 3"));
  EXPECT_THAT(refusal([] {
                (void)Batch(Tensors{{"a", at::zeros({})}});
              }),
              HasSubstr("field \"a\" of a batch has no dimension that counts the rows"));
}

TEST(Batch, GroupedBatchAddsRowsAndRefusesPlainAccess) {
  std::vector<Group> groups(2);
  groups[0] = {.name = "left", .fields = {{"x", at::zeros({2})}}, .positions = {5, 6}};
  groups[1] = {.name = "right", .fields = {{"x", at::zeros({3})}}, .positions = {7, 8, 9}};
  const Batch batch(std::move(groups), {.split = Split::validation, .epoch = 4, .index = 2});
  EXPECT_EQ(batch.rows(), 5);
  EXPECT_EQ(batch.epoch(), 4U);
  EXPECT_THAT(refusal([&] { (void)batch["x"]; }), HasSubstr("batch of 2 groups\n"));
  EXPECT_EQ(to_text(batch), "left: x f32 [2]; right: x f32 [3]");
  EXPECT_EQ(to_text(batch.origin()), "validation batch 2");
}

TEST(Batch, SetReplacesAndAdds) {
  Batch batch;
  batch.set("x", at::zeros({2}));
  batch.set("x", at::arange(4));
  EXPECT_EQ(batch["x"].size(0), 4);
  EXPECT_EQ(batch.rows(), 0);  // positions come from the loader, not from fields that are added later
}

std::uint64_t next_key() { return RandomScope::next_site(1).key; }

std::vector<std::uint64_t> keys(std::uint64_t seed, std::uint64_t epoch, int count) {
  const RandomScope scope({.seed = seed, .epoch = epoch});
  std::vector<std::uint64_t> result;
  for (int i = 0; i < count; ++i) result.push_back(next_key());
  return result;
}

TEST(RandomScope, KeysAreAFunctionOfSeedEpochAndSite) {
  EXPECT_EQ(keys(1, 2, 4), keys(1, 2, 4));
  std::set<std::uint64_t> all;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      for (const std::uint64_t key : keys(seed, epoch, 4)) all.insert(key);
    }
  }
  EXPECT_EQ(all.size(), 16U);
}

Group rows_of(std::string name, std::int64_t first, std::int64_t count) {
  Group group;
  group.name = std::move(name);
  for (std::int64_t i = 0; i < count; ++i) group.positions.push_back(first + i);
  return group;
}

Batch batch_of(std::vector<Group> groups, std::uint64_t epoch) { return Batch(std::move(groups), {.epoch = epoch}); }

TEST(RandomScope, ASiteRunsOverTheRowsOfTheEpoch) {
  const auto site_of = [](std::int64_t first, std::int64_t count, std::int64_t elements) {
    std::vector<Group> groups;
    groups.push_back(rows_of("", first, count));
    const RandomScope scope(5, batch_of(std::move(groups), 3));
    return RandomScope::next_site(elements);
  };
  const RandomScope::Site whole = site_of(40, 8, 8 * 6);
  const RandomScope::Site second_half = site_of(44, 4, 4 * 6);
  EXPECT_EQ(whole.key, second_half.key);
  EXPECT_EQ(whole.first, 40 * 6);
  EXPECT_EQ(second_half.first, 44 * 6);
  EXPECT_EQ(site_of(44, 4, 7).first, 0) << "not a multiple of the rows";
}

TEST(RandomScope, ARowScopeCountsTheRowsItIsGiven) {
  std::vector<Group> groups;
  groups.push_back(rows_of("a", 10, 4));
  groups.push_back(rows_of("b", 30, 2));
  const Batch batch = batch_of(std::move(groups), 0);
  const RandomScope scope(5, batch);
  EXPECT_EQ(RandomScope::next_site(12).first, 40 * 2) << "rows of both groups";
  {
    const RowScope rows(batch.groups()[1].positions);
    EXPECT_EQ(RandomScope::next_site(6).first, 30 * 3);
  }
  {
    const std::vector<std::int64_t> mixed = {7, 2, 3, 9};
    const RowScope rows(mixed);
    EXPECT_EQ(RandomScope::next_site(8).runs, (std::vector<IndexRun>{{14, 2}, {4, 4}, {18, 2}}));
    EXPECT_TRUE(RandomScope::next_site(9).runs.empty()) << "not a multiple of the rows";
  }
  EXPECT_EQ(RandomScope::next_site(12).first, 40 * 2);
  EXPECT_EQ(RandomScope::position()->site, 5U);
}

TEST(RandomScope, RowsThatWereLeftOutMoveNoOther) {
  std::vector<Group> groups;
  groups.push_back(rows_of("", 40, 5));
  groups.front().positions.erase(groups.front().positions.begin() + 2);
  const RandomScope scope(5, batch_of(std::move(groups), 0));
  EXPECT_EQ(RandomScope::next_site(12).runs, (std::vector<IndexRun>{{120, 6}, {129, 6}}));
}

TEST(RandomScope, InnerScopeLeavesTheOuterSitesAlone) {
  const std::vector<std::uint64_t> expected = keys(1, 0, 2);
  const RandomScope outer({.seed = 1});
  EXPECT_EQ(next_key(), expected[0]);
  (void)keys(9, 9, 3);
  EXPECT_EQ(next_key(), expected[1]);
}

TEST(RandomScope, GoesOnFromAPlace) {
  EXPECT_FALSE(RandomScope::position().has_value());
  const std::vector<std::uint64_t> expected = keys(1, 2, 4);
  const RandomScope outer({.seed = 1, .epoch = 2});
  (void)next_key();
  const auto place = RandomScope::position();
  ASSERT_TRUE(place.has_value());
  for (int pass = 0; pass < 2; ++pass) {
    const RandomScope again(*place);
    EXPECT_EQ(next_key(), expected[1]);
    EXPECT_EQ(next_key(), expected[2]);
  }
  EXPECT_EQ(next_key(), expected[1]) << "the outer scope stands where it stood";
}

TEST(RandomScope, OutsideAnyScopeTheDefaultGeneratorDecides) {
  const auto draw = [] {
    at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(7);
    return std::pair(next_key(), next_key());
  };
  const auto first = draw();
  EXPECT_EQ(first, draw());
  EXPECT_NE(first.first, first.second);
}

TEST(RandomScope, IsThreadLocal) {
  const RandomScope scope({.seed = 1});
  const std::vector<std::uint64_t> expected = keys(1, 0, 1);
  std::uint64_t elsewhere = 0;
  std::thread([&] { elsewhere = next_key(); }).join();
  EXPECT_NE(elsewhere, expected[0]);
  EXPECT_EQ(next_key(), expected[0]);  // the other thread did not use up a site
}

TEST(Agreement, OneProcessAgreesWithItself) {
  Agreement& alone = Agreement::of_one();
  EXPECT_TRUE(alone.alone());
  EXPECT_EQ(alone.sum(std::int64_t{7}), 7);
  EXPECT_TRUE(alone.any(true));
  EXPECT_FALSE(alone.any(false));
  EXPECT_EQ(alone.from_root(Json{{"a", 1}}), (Json{{"a", 1}}));
  std::vector<at::Tensor> values = {at::arange(3)};
  const void* const before = values[0].data_ptr();
  alone.sum(values);
  EXPECT_EQ(values[0].data_ptr(), before);
  EXPECT_TRUE(values[0].equal(at::arange(3)));
}

}  // namespace
}  // namespace millrace
