// Tests of batches from several data sets, and of weighted draws; loader_weights_test.cpp tests how often weighted samples occur.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "millrace/base/error.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

using test::by_fours;
using test::copy_of;
using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::ids_of;
using test::sorted;
using test::up_to;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LoaderOptions options_of(std::int64_t batch_size, int readers = 0) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = true;
  options.seed = 42;
  options.readers = readers;
  return options;
}

Dataset counting(const std::string& name, std::int64_t size) { return {name, std::make_shared<CountingSource>(size)}; }

Pipeline two(Grouping grouping, std::int64_t first = 10, std::int64_t second = 25) {
  Pipeline pipeline;
  pipeline.datasets = {counting("short", first), counting("long", second)};
  pipeline.grouping = grouping;
  return pipeline;
}

std::vector<std::size_t> rows_of(const std::vector<Delivered>& batches, std::size_t group) {
  std::vector<std::size_t> rows;
  for (const Delivered& batch : batches) rows.push_back(batch.ids[group].size());
  return rows;
}

// A pipeline for each grouping.
std::map<std::string, Pipeline> all_kinds() {
  std::map<std::string, Pipeline> all;
  all["each"] = two(Grouping::each);
  all["repeat"] = two(Grouping::repeat);
  all["cut"] = two(Grouping::cut);
  all["mix"] = two(Grouping::mix);
  all["own sizes"] = two(Grouping::repeat);
  all["own sizes"].datasets[0].batch_size = 3;
  all["own sizes"].datasets[1].batch_size = 2;
  all["weights"] = two(Grouping::each);
  all["weights"].datasets[1].weights = by_fours(25, 2);
  all["weighted mix"] = two(Grouping::mix);
  all["weighted mix"].datasets[0].weight = 2.0;
  all["curriculum"] = two(Grouping::mix);
  all["curriculum"].datasets[1].weights = by_fours(25, 1);
  all["short mix"] = two(Grouping::mix);
  all["short mix"].samples_per_epoch = 17;
  all["long mix"] = two(Grouping::mix);
  all["long mix"].samples_per_epoch = 50;
  all["one"] = single(std::make_shared<CountingSource>(25));
  all["one"].datasets[0].weights = by_fours(25, 2);
  return all;
}

TEST(Groups, a_data_set_that_repeats_is_shuffled_anew_in_each_round) {
  Loader loader(two(Grouping::repeat), options_of(4));
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  EXPECT_EQ(loader.samples_per_epoch(), 28 + 25);
  EXPECT_EQ(loader.rows_per_batch(), 8);
  const std::vector<Delivered> batches = epoch_of(loader);
  EXPECT_THAT(rows_of(batches, 0), Each(4U)) << "full to the end";
  EXPECT_EQ(sorted(ids_of(batches, 1)), up_to(25));
  const std::vector<std::int64_t> ids = ids_of(batches, 0);
  const std::vector<std::int64_t> first(ids.begin(), ids.begin() + 10);
  const std::vector<std::int64_t> second(ids.begin() + 10, ids.begin() + 20);
  EXPECT_EQ(sorted(first), up_to(10));
  EXPECT_EQ(sorted(second), up_to(10));
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(ids.begin() + 20, ids.end()).size(), 8U);
  std::vector<std::int64_t> positions;
  for (const Delivered& batch : batches) positions.insert(positions.end(), batch.positions[0].begin(), batch.positions[0].end());
  EXPECT_EQ(positions, up_to(28)) << "they count on, and key new random numbers";

  Loader plain(two(Grouping::each), options_of(4));
  const std::vector<std::int64_t> as_before = ids_of(epoch_of(plain), 0);
  EXPECT_EQ(as_before, first) << "the first round is that of data sets that do not repeat";
  EXPECT_NE(ids_of(epoch_of(loader), 0), ids) << "the next epoch";
}

TEST(Groups, the_longer_data_set_is_cut) {
  Loader loader(two(Grouping::cut), options_of(4));
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  EXPECT_EQ(loader.samples_per_epoch(), 10 + 12);
  const std::vector<Delivered> batches = epoch_of(loader);
  EXPECT_THAT(rows_of(batches, 0), ElementsAre(4, 4, 2));
  EXPECT_THAT(rows_of(batches, 1), Each(4U));
  EXPECT_EQ(sorted(ids_of(batches, 0)), up_to(10));
  const std::vector<std::int64_t> kept = ids_of(batches, 1);
  EXPECT_EQ(std::set(kept.begin(), kept.end()).size(), 12U);
  std::set<std::int64_t> seen;
  for (int epoch = 0; epoch < 12; ++epoch) {
    for (const std::int64_t id : ids_of(epoch_of(loader), 1)) seen.insert(id);
  }
  EXPECT_EQ(seen.size(), 25U) << "other samples are left out in other epochs";
  LoaderOptions dropping = options_of(4);
  dropping.drop_last = true;
  EXPECT_EQ(Loader(two(Grouping::cut), dropping).batches_per_epoch(), 2);
}

TEST(Groups, each_data_set_may_have_a_batch_size_of_its_own) {
  Pipeline pipeline = two(Grouping::each);
  pipeline.datasets[0].batch_size = 2;
  pipeline.datasets[1].batch_size = 7;
  Loader loader(pipeline, options_of(4));
  EXPECT_EQ(loader.rows_per_batch(), 9);
  const std::vector<Delivered> batches = epoch_of(loader);
  EXPECT_THAT(rows_of(batches, 0), ElementsAre(2, 2, 2, 2, 2));
  EXPECT_THAT(rows_of(batches, 1), ElementsAre(7, 7, 7, 4, 0));
  EXPECT_EQ(sorted(ids_of(batches, 0)), up_to(10));
  EXPECT_EQ(sorted(ids_of(batches, 1)), up_to(25));
}

TEST(Groups, a_mix_gives_each_sample_once_and_batches_of_one_size) {
  Loader loader(two(Grouping::mix), options_of(8));
  EXPECT_EQ(loader.batches_per_epoch(), 5);
  EXPECT_EQ(loader.samples_per_epoch(), 35);
  EXPECT_EQ(loader.rows_per_batch(), 8);
  std::set<std::size_t> sizes;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const std::vector<Delivered> batches = epoch_of(loader);
    EXPECT_EQ(sorted(ids_of(batches, 0)), up_to(10));
    EXPECT_EQ(sorted(ids_of(batches, 1)), up_to(25));
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(batches[i].ids[0].size() + batches[i].ids[1].size(), i < 4 ? 8U : 3U);
      sizes.insert(batches[i].ids[0].size());
    }
  }
  EXPECT_GT(sizes.size(), 2U) << "rows fall to data sets by chance";
}

TEST(Groups, a_mix_may_have_shorter_and_longer_epochs_than_there_are_samples) {
  Pipeline pipeline = two(Grouping::mix);
  pipeline.samples_per_epoch = 17;
  Loader fewer(pipeline, options_of(4));
  EXPECT_EQ(fewer.batches_per_epoch(), 5);
  EXPECT_EQ(fewer.samples_per_epoch(), 17);
  std::set<std::int64_t> seen;
  for (int epoch = 0; epoch < 12; ++epoch) {
    const std::vector<Delivered> batches = epoch_of(fewer);
    std::vector<std::int64_t> ids = ids_of(batches, 0);
    for (const std::int64_t id : ids_of(batches, 1)) ids.push_back(100 + id);
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 17U);
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(seen.size(), 35U);
  pipeline.samples_per_epoch = 70;
  Loader more(pipeline, options_of(4));
  const std::vector<Delivered> batches = epoch_of(more);
  std::vector<std::int64_t> twice = up_to(25);
  for (const std::int64_t id : up_to(25)) twice.push_back(id);
  EXPECT_EQ(sorted(ids_of(batches, 1)), sorted(twice));
  EXPECT_EQ(more.dataset_plans()[1].rule, "mixed: 71.4 % of the rows, repeats 2.0 times an epoch");
  EXPECT_EQ(fewer.dataset_plans()[1].rule, "mixed: 71.4 % of the rows, 48.6 % of the samples an epoch");
}

TEST(Groups, an_empty_group_has_its_name_its_fields_and_memory) {
  Loader loader(two(Grouping::each), options_of(4));
  std::optional<HostBatch> last;
  while (auto batch = loader.next()) last = std::move(batch);
  const HostBatch::Group& empty = last->groups.at(0);
  EXPECT_EQ(empty.name, "short");
  EXPECT_THAT(empty.positions, IsEmpty());
  EXPECT_THAT(empty.indices, IsEmpty());
  ASSERT_EQ(empty.fields.size(), 2U);
  EXPECT_EQ(empty.fields[1].shape, Shape{3});
  for (const std::byte* data : empty.data) EXPECT_NE(data, nullptr);
}

TEST(Grouped, streams_are_the_same_for_any_number_of_readers_and_resume_everywhere) {
  for (const auto& [kind, pipeline] : all_kinds()) {
    std::vector<Delivered> expected;
    Loader straight(pipeline, options_of(4));
    const auto per_epoch = static_cast<std::size_t>(straight.batches_per_epoch());
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (Delivered& batch : epoch_of(straight)) expected.push_back(std::move(batch));
    }
    for (std::size_t stop = 0; stop <= 2 * per_epoch; ++stop) {
      Loader before(pipeline, options_of(4, stop % 2 == 0 ? 3 : 0));
      std::vector<Delivered> seen;
      while (seen.size() < stop) {
        if (auto batch = before.next()) seen.push_back(copy_of(*batch));
      }
      Loader after(pipeline, options_of(4, static_cast<int>(stop % 3)));
      after.load_state(Json::parse(before.state().dump()));
      while (seen.size() < expected.size()) {
        if (auto batch = after.next()) seen.push_back(copy_of(*batch));
      }
      ASSERT_EQ(seen, expected) << kind << ", stopped after " << stop;
    }
  }
}

TEST(Grouped, two_ranks_have_disjoint_parts_of_the_same_global_batches) {
  using Row = std::tuple<std::size_t, std::int64_t, std::int64_t>;  // group, position, sample
  const auto rows = [](const HostBatch& batch, std::set<Row>& all) {
    for (std::size_t group = 0; group < batch.groups.size(); ++group) {
      const HostBatch::Group& here = batch.groups[group];
      for (std::size_t i = 0; i < here.positions.size(); ++i) {
        EXPECT_TRUE(all.insert({group, here.positions[i], here.indices[i]}).second);
      }
    }
  };
  for (auto& [kind, pipeline] : all_kinds()) {
    Pipeline halves = pipeline;
    for (Dataset& dataset : pipeline.datasets) {
      if (dataset.batch_size) *dataset.batch_size *= 2;
    }
    Loader whole(pipeline, options_of(8));
    LoaderOptions options = options_of(4);
    options.world_size = 2;
    Loader first(halves, options);
    options.rank = 1;
    Loader second(halves, options);
    first.load_state(whole.state());
    ASSERT_EQ(first.batches_per_epoch(), whole.batches_per_epoch()) << kind;
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (auto batch = whole.next()) {
        std::set<Row> of_one, of_two;
        rows(*batch, of_one);
        rows(*first.next(), of_two);
        rows(*second.next(), of_two);
        ASSERT_EQ(of_one, of_two) << kind;
      }
      EXPECT_FALSE(first.next());
      EXPECT_FALSE(second.next());
    }
  }
}

TEST(Grouped, without_shuffle_samples_come_in_their_order) {
  LoaderOptions options = options_of(4);
  options.shuffle = false;
  Loader repeat(two(Grouping::repeat), options);
  std::vector<std::int64_t> ids = ids_of(epoch_of(repeat), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<std::int64_t>(i % 10));
  Loader mix(two(Grouping::mix), options);
  const std::vector<Delivered> batches = epoch_of(mix);
  EXPECT_THAT(rows_of(batches, 0), ElementsAre(4, 4, 2, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(ids_of(batches, 1), up_to(25));
}

TEST(Grouped, a_cache_and_tickets_of_several_samples_change_nothing) {
  for (const auto& [kind, pipeline] : all_kinds()) {
    Loader plain(pipeline, options_of(4));
    Pipeline other = pipeline;
    for (Dataset& dataset : other.datasets) {
      auto source = std::make_shared<CountingSource>(dataset.source->size(), 3);
      source->kept = Keeps::parts;
      dataset.source = source;
    }
    use_cache(other, std::make_shared<SampleCache>(1 << 20));
    Loader cached(other, options_of(4, 2));
    for (int epoch = 0; epoch < 3; ++epoch) ASSERT_EQ(epoch_of(cached), epoch_of(plain)) << kind;
  }
}

TEST(Grouped, a_mix_announces_every_sample_before_it_is_read) {
  Pipeline pipeline = two(Grouping::mix, 40, 60);
  std::vector<std::shared_ptr<CountingSource>> sources;
  for (Dataset& dataset : pipeline.datasets) {
    sources.push_back(std::make_shared<CountingSource>(dataset.source->size()));
    sources.back()->is_advised = true;
    dataset.source = sources.back();
  }
  Loader loader(pipeline, options_of(4));
  (void)epoch_of(loader);
  const std::size_t all = sources[0]->advised.size() + sources[1]->advised.size();
  EXPECT_EQ(all, 100U) << "of this epoch and the next";
  const std::size_t before = sources[1]->advised.size();
  (void)epoch_of(loader);
  EXPECT_GT(sources[1]->advised.size(), before);
}

TEST(Grouped, bad_samples_are_left_out_or_replaced_by_ones_of_the_same_data_set) {
  for (const BadSamples policy : {BadSamples::skip, BadSamples::substitute}) {
    Pipeline pipeline = two(Grouping::mix);
    auto source = std::make_shared<CountingSource>(25);
    source->before = [](std::int64_t index) {
      if (index == 7) throw DataError({.what = "sample 7 is damaged", .where = "a.h5", .next = ""});
    };
    pipeline.datasets[1].source = source;
    LoaderOptions options = options_of(4, 2);
    options.bad_samples = policy;
    options.max_bad_fraction = 1;
    Loader loader(pipeline, options);
    const std::vector<std::int64_t> ids = ids_of(epoch_of(loader), 1);
    EXPECT_EQ(ids.size(), policy == BadSamples::skip ? 24U : 25U);
    EXPECT_THAT(ids, Each(testing::Ne(7)));
  }
  Pipeline weighted = single(std::make_shared<CountingSource>(8));
  weighted.datasets[0].weights = by_fours(8);
  auto source = std::make_shared<CountingSource>(8);
  source->before = [](std::int64_t index) {
    if (index == 3) throw DataError({.what = "sample 3 is damaged", .where = "a.h5", .next = ""});
  };
  weighted.datasets[0].source = source;
  LoaderOptions options = options_of(4);
  options.bad_samples = BadSamples::substitute;
  options.max_bad_fraction = 1;
  Loader loader(weighted, options);
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const std::int64_t id : ids_of(epoch_of(loader)))
      EXPECT_TRUE(id % 4 != 0 && id != 3) << id << " has no weight, or is bad";
  }
}

TEST(Grouped, mistakes_are_refused_when_the_loader_is_made) {
  const auto what = [](const std::function<void(Pipeline&, LoaderOptions&)>& spoil, Grouping grouping = Grouping::mix) {
    Pipeline pipeline = two(grouping);
    LoaderOptions options = options_of(4);
    spoil(pipeline, options);
    const Message message = refusal_message([&] { const Loader loader(pipeline, options); });
    EXPECT_NE(message.where, "");
    EXPECT_NE(message.next, "");
    return message.what;
  };
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.datasets[0].batch_size = 0; }, Grouping::each),
            "the batch size of data set \"short\" is 0");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.datasets[0].batch_size = 2; }),
            "data set \"short\" has its own batch size, but the data sets are mixed");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.datasets[1].weight = 2; }, Grouping::repeat),
            "data set \"long\" has a weight, but the data sets are not mixed");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.samples_per_epoch = 9; }, Grouping::each),
            "samples_per_epoch is 9, but the data sets are not mixed");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.samples_per_epoch = 0; }), "samples_per_epoch is 0");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.datasets[1].weight = -1; }), "the weight of data set \"long\" is -1");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions& o) { p.datasets[1].weights = by_fours(25), o.shuffle = false; }),
            "data set \"long\" has weights, but samples are read in order, so nothing is drawn");
  EXPECT_EQ(what([](Pipeline& p, LoaderOptions&) { p.datasets[1].weights = by_fours(24); }),
            "the weights of data set \"long\" for epoch 0 are 24 numbers for 25 samples");
  const auto weights = [&](float first, float others) {
    return what([=](Pipeline& p, LoaderOptions&) {
      p.datasets[0].weights = [=](std::uint64_t) {
        std::vector<float> all(10, others);
        all[0] = first;
        return all;
      };
    });
  };
  EXPECT_EQ(weights(-1, 1), "the weights of data set \"short\" for epoch 0: number 0 is -1");
  EXPECT_EQ(weights(NAN, 1), "the weights of data set \"short\" for epoch 0: number 0 is nan");
  EXPECT_EQ(weights(INFINITY, 1), "the weights of data set \"short\" for epoch 0: number 0 is inf");
  EXPECT_EQ(weights(0, 0), "the weights of data set \"short\" for epoch 0 are all 0");
}

TEST(Grouped, weights_that_go_wrong_in_a_later_epoch_end_it_with_the_same_words) {
  for (const Grouping grouping : {Grouping::each, Grouping::mix}) {
    for (const int readers : {0, 2}) {
      Pipeline pipeline = two(grouping);
      pipeline.datasets[0].weights = [](std::uint64_t epoch) { return std::vector<float>(epoch == 0 ? 10 : 9, 1.0F); };
      Loader loader(pipeline, options_of(4, readers));
      (void)epoch_of(loader);
      EXPECT_EQ(refusal_message([&] { (void)epoch_of(loader); }).what,
                "the weights of data set \"short\" for epoch 1 are 9 numbers for 10 samples");
    }
  }
}

TEST(Grouped, a_snapshot_of_another_grouping_is_refused) {
  const Json state = Loader(two(Grouping::repeat), options_of(4)).state();
  Loader other(two(Grouping::each), options_of(4));
  EXPECT_EQ(refusal_message([&] { other.load_state(state); }).what,
            "the snapshot was made with data sets grouped as \"repeat; short, long\", this run has \"each\"");
  EXPECT_FALSE(other.state().contains("order")) << "as snapshots were before there was a choice";
  Pipeline weighted = two(Grouping::mix);
  weighted.datasets[0].weights = by_fours(10);
  weighted.datasets[1].weight = 2;
  Loader one(weighted, options_of(4));
  weighted.datasets[0].weights = by_fours(10, 0);
  Loader two_weights(weighted, options_of(4));
  EXPECT_THAT(refusal_message([&] { two_weights.load_state(one.state()); }).what, HasSubstr("mix; short weights "));
}

TEST(Grouped, the_plan_has_a_line_for_each_data_set) {
  const auto rules = [](const Pipeline& pipeline, bool drops = false) {
    LoaderOptions options = options_of(4);
    options.drop_last = drops;
    std::vector<std::string> lines;
    for (const Loader::DatasetPlan& plan : Loader(pipeline, options).dataset_plans()) {
      lines.push_back(plan.name + " " + std::to_string(plan.samples) + " by " + std::to_string(plan.batch_size) + ": " +
                      plan.rule);
    }
    return lines;
  };
  EXPECT_THAT(rules(two(Grouping::each)), ElementsAre("short 10 by 4: each sample once an epoch; no rows from batch 3 of 7 on",
                                                      "long 25 by 4: each sample once an epoch"));
  EXPECT_THAT(rules(two(Grouping::repeat)),
              ElementsAre("short 10 by 4: repeats 2.8 times an epoch", "long 25 by 4: each sample once an epoch"));
  EXPECT_THAT(rules(two(Grouping::cut)),
              ElementsAre("short 10 by 4: each sample once an epoch", "long 25 by 4: cut to 12 of 25 samples an epoch"));
  EXPECT_THAT(rules(two(Grouping::cut), true),
              ElementsAre("short 10 by 4: cut to 8 of 10 samples an epoch", "long 25 by 4: cut to 8 of 25 samples an epoch"));
  EXPECT_THAT(rules(two(Grouping::mix)), ElementsAre("short 10 by 4: mixed: 28.6 % of the rows, each sample once an epoch",
                                                     "long 25 by 4: mixed: 71.4 % of the rows, each sample once an epoch"));
  Pipeline weighted = two(Grouping::mix);
  weighted.datasets[0].weight = 3;
  EXPECT_THAT(rules(weighted), ElementsAre("short 10 by 4: mixed: 75 % of the rows, drawn with replacement",
                                           "long 25 by 4: mixed: 25 % of the rows, drawn with replacement"));
  Pipeline drawn = two(Grouping::each);
  drawn.datasets[1].weights = by_fours(25);
  EXPECT_EQ(rules(drawn)[1], "long 25 by 4: drawn by weight with replacement, 25 draws an epoch");
}

}  // namespace
}  // namespace millrace::data
