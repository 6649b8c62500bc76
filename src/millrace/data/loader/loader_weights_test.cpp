// Tests that samples and data sets that are drawn by weight occur in proportion to their weights.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "millrace/data/loader/loader.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

using test::by_fours;
using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::ids_of;
using test::sorted;
using test::up_to;

LoaderOptions in_batches_of(std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = true;
  options.seed = 42;
  options.readers = 0;
  return options;
}

Pipeline mix() {
  Pipeline pipeline;
  pipeline.datasets = {{"short", std::make_shared<CountingSource>(400)}, {"long", std::make_shared<CountingSource>(1600)}};
  pipeline.grouping = Grouping::mix;
  return pipeline;
}

// Expects each count to be within five standard deviations of its share.
void expect_shares(const std::map<std::int64_t, std::int64_t>& counts, const std::map<std::int64_t, double>& shares) {
  std::int64_t all = 0;
  for (const auto& [key, count] : counts) all += count;
  for (const auto& [key, share] : shares) {
    const auto it = counts.find(key);
    const auto count = static_cast<double>(it == counts.end() ? 0 : it->second);
    const double expected = static_cast<double>(all) * share;
    EXPECT_NEAR(count, expected, 5 * std::sqrt(expected * (1 - share)) + 1e-9) << key;
  }
}

TEST(Weights, draw_with_replacement_in_proportion_until_the_epoch_that_has_none) {
  Pipeline pipeline = single(std::make_shared<CountingSource>(1000));
  pipeline.datasets[0].weights = by_fours(1000, 10);
  Loader loader(pipeline, in_batches_of(50));
  EXPECT_EQ(loader.batches_per_epoch(), 20);
  std::map<std::int64_t, std::int64_t> counts;
  std::vector<std::vector<std::int64_t>> epochs;
  for (int epoch = 0; epoch < 10; ++epoch) {
    epochs.push_back(ids_of(epoch_of(loader)));
    for (const std::int64_t id : epochs.back()) ++counts[id % 4];
  }
  expect_shares(counts, {{0, 0.0}, {1, 0.125}, {2, 0.25}, {3, 0.625}});
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ(sorted(ids_of(epoch_of(loader))), up_to(1000)) << "from epoch 10 on a permutation";
}

TEST(Weights, of_data_sets_and_of_samples_share_the_rows_of_a_mix) {
  const auto counts_of = [](const Pipeline& pipeline) {
    Loader loader(pipeline, in_batches_of(100));
    std::map<std::int64_t, std::int64_t> counts;
    for (int epoch = 0; epoch < 20; ++epoch) {
      const std::vector<Delivered> batches = epoch_of(loader);
      for (std::size_t group : {0U, 1U}) {
        for (const std::int64_t id : ids_of(batches, group)) ++counts[static_cast<std::int64_t>(10 * group) + id % 4];
      }
    }
    return counts;
  };
  Pipeline by_set = mix();
  by_set.datasets[0].weight = 3.0;  // the other data set counts as weight 1
  const double quarter = 0.25;
  expect_shares(counts_of(by_set), {{0, 0.75 * quarter}, {3, 0.75 * quarter}, {10, 0.25 * quarter}, {13, 0.25 * quarter}});
  Pipeline by_sample = mix();
  by_sample.datasets[0].weights = by_fours(400);  // their sum is 800; the other data set has 1600 samples that count 1 each
  expect_shares(counts_of(by_sample),
                {{0, 0.0}, {1, 0.125 / 3}, {3, 0.625 / 3}, {10, 2.0 / 3 * quarter}, {12, 2.0 / 3 * quarter}});
  Pipeline both = by_sample;
  both.datasets[1].weight = 3.0;
  expect_shares(counts_of(both), {{0, 0.0}, {3, 0.625 * 0.25}, {10, 0.75 * quarter}});
}

}  // namespace
}  // namespace millrace::data
