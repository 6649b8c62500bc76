#include "millrace/train/step/micro_batches.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

namespace millrace {
namespace {

using testing::ElementsAre;

class Doubling final : public Recipe {
 public:
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *module_; }
  std::vector<Objective> objectives() override { return {}; }
  Batch prepare(Batch batch) override {
    ++prepared;
    for (Group& group : batch.groups()) group.fields["x"] = group.fields["x"] * 2;
    return batch;
  }
  int prepared = 0;

 private:
  std::shared_ptr<torch::nn::Module> module_ = std::make_shared<torch::nn::Module>();
};

Group group_of(std::string name, std::vector<std::int64_t> positions) {
  Group group;
  group.name = std::move(name);
  group.fields["x"] = at::arange(static_cast<std::int64_t>(positions.size()));
  group.positions = std::move(positions);
  return group;
}

Batch two_groups() {
  std::vector<Group> groups;
  groups.push_back(group_of("large", {7, 3, 9, 1, 4}));
  groups.push_back(group_of("small", {0, 1}));
  return Batch(std::move(groups), {.split = Split::validation, .epoch = 6, .index = 3});
}

TEST(MicroBatches, KeepTheOrderAndTheEpochAndLeaveNoRowOut) {
  const Batch batch = two_groups();
  EXPECT_EQ(micro_batches_of(batch, 8), 5) << "a row of the largest group each";
  EXPECT_EQ(micro_batches_of(batch, 2), 2);
  EXPECT_EQ(micro_batches_of(Batch(), 3), 1);
  const Batch first = micro_batch(batch, 0, 2);
  const Batch second = micro_batch(batch, 1, 2);
  EXPECT_EQ(second.epoch(), 6U);
  EXPECT_THAT(first.groups()[0].positions, ElementsAre(7, 3));
  EXPECT_THAT(second.groups()[0].positions, ElementsAre(9, 1, 4));
  EXPECT_TRUE(at::equal(at::cat({first.groups()[0].fields.at("x"), second.groups()[0].fields.at("x")}), at::arange(5)));
  EXPECT_EQ(first.rows() + second.rows(), batch.rows());
}

TEST(MicroBatches, EachIsPreparedOnceAndAGroupMayBeEmptyInOne) {
  Doubling recipe;
  std::vector<std::int64_t> small_rows;
  std::vector<bool> only, last;
  std::int64_t sum = 0;
  const std::int64_t rows =
      for_each_micro_batch({recipe, nullptr, at::kCPU, 5}, two_groups(), [&](const Batch& micro, MicroPosition place) {
        small_rows.push_back(micro.groups()[1].rows());
        only.push_back(place.only);
        last.push_back(place.last);
        for (const Group& group : micro.groups()) sum += group.fields.at("x").sum().item<std::int64_t>();
      });
  EXPECT_EQ(rows, 7);
  EXPECT_EQ(recipe.prepared, 5);
  EXPECT_THAT(small_rows, ElementsAre(0, 0, 1, 0, 1));
  EXPECT_THAT(only, ElementsAre(false, false, false, false, false));
  EXPECT_THAT(last, ElementsAre(false, false, false, false, true));
  EXPECT_EQ(sum, 2 * (0 + 1 + 2 + 3 + 4 + 0 + 1));
}

TEST(MicroBatches, AnEmptyBatchReachesNobody) {
  Doubling recipe;
  std::vector<Group> groups(2);
  const std::int64_t rows =
      for_each_micro_batch({recipe, nullptr, at::kCPU, 2}, Batch(std::move(groups)), [](const Batch&, MicroPosition) { FAIL(); });
  EXPECT_EQ(rows, 0);
  EXPECT_EQ(recipe.prepared, 0);
}

TEST(MicroBatches, AWholeBatchIsTheOnly) {
  Doubling recipe;
  telemetry::Timeline timeline;
  timeline.begin_step();
  int visits = 0;
  for_each_micro_batch({recipe, &timeline, at::kCPU, 1}, two_groups(), [&](const Batch&, MicroPosition place) {
    ++visits;
    EXPECT_TRUE(place.only && place.last);
  });
  timeline.end_step();
  EXPECT_EQ(visits, 1);
  EXPECT_GT(timeline.total().of(telemetry::Phase::prepare), 0.0);
}

}  // namespace
}  // namespace millrace
