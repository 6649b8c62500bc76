// Tests how samples that can't be read are handled: under every policy the result is the same for any number of readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <set>

#include "millrace/base/error.h"
#include "millrace/data/loader/loader.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

using test::copy_of;
using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::ids_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// True for the samples 7, 17, 27, ..., which can't be read.
bool is_bad(std::int64_t index) { return index % 10 == 7; }

std::shared_ptr<CountingSource> failing(std::int64_t samples_per_ticket = 1) {
  auto source = std::make_shared<CountingSource>(100, samples_per_ticket);
  source->before = [](std::int64_t index) {
    if (!is_bad(index)) return;
    throw DataError({.what = "sample " + std::to_string(index) + " of a.h5 is damaged", .where = "field \"vis\"", .next = ""});
  };
  return source;
}

LoaderOptions with(BadSamples policy, int readers, std::vector<std::string>* warnings = nullptr) {
  LoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 3;
  options.readers = readers;
  options.bad_samples = policy;
  options.max_bad_fraction = 0.2;
  if (warnings) options.warn = [warnings](const std::string& line) { warnings->push_back(line); };
  return options;
}

template <class E>
E error_at_end(Loader& loader) {
  try {
    for (;;) (void)loader.next();
  } catch (const E& error) {
    return error;
  }
}

TEST(BadSamples, fail_names_sample_batch_and_reader) {
  for (const int readers : {0, 1, 4}) {
    for (const std::int64_t samples_per_ticket : {1, 5}) {
      LoaderOptions options = with(BadSamples::fail, readers);
      options.shuffle = false;
      Loader loader(single(failing(samples_per_ticket)), options);
      const DataError error = error_at_end<DataError>(loader);
      EXPECT_EQ(error.message().what, "sample 7 of a.h5 is damaged");
      EXPECT_THAT(error.message().next, HasSubstr("data.bad_samples=\"skip\""));
      const std::string reader = readers == 0 ? "" : readers == 1 ? ", reader 0" : ", reader [0-3]";
      EXPECT_THAT(error.message().where, testing::MatchesRegex("field \"vis\"\nbatch 0 of epoch 0" + reader));
    }
  }
}

TEST(BadSamples, fail_comes_again_until_the_loader_is_set_elsewhere) {
  for (const int readers : {0, 2}) {
    LoaderOptions options = with(BadSamples::fail, readers);
    options.shuffle = false;
    Loader loader(single(failing()), options);
    const Json state = loader.state();
    const std::string first = error_at_end<DataError>(loader).message().what;
    EXPECT_EQ(error_at_end<DataError>(loader).message().what, first);
    EXPECT_EQ(loader.state(), state) << "the batch was not delivered";
    loader.restart();
    EXPECT_EQ(error_at_end<DataError>(loader).message().what, first);
  }
}

TEST(BadSamples, the_first_bad_row_is_named_however_readers_race) {
  for (int round = 0; round < 20; ++round) {
    auto source = failing();
    source->before = [inner = source->before](std::int64_t index) {
      if (index == 17) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      inner(index);
    };
    LoaderOptions options = with(BadSamples::fail, 4);
    options.batch_size = 20;
    options.shuffle = false;
    options.max_bad_fraction = 1;
    Loader loader(single(source), options);
    EXPECT_EQ(error_at_end<DataError>(loader).message().what, "sample 7 of a.h5 is damaged");
  }
}

TEST(BadSamples, skip_leaves_rows_out_and_keeps_the_others_bytes) {
  std::vector<Delivered> expected;
  for (const int readers : {0, 1, 2, 8}) {
    for (const std::int64_t samples_per_ticket : {1, 3, 100}) {
      std::vector<std::string> warnings;
      Loader loader(single(failing(samples_per_ticket)), with(BadSamples::skip, readers, &warnings));
      const std::vector<Delivered> batches = epoch_of(loader);
      const std::vector<std::int64_t> ids = ids_of(batches);
      EXPECT_EQ(ids.size(), 90U);
      EXPECT_EQ(std::count_if(ids.begin(), ids.end(), is_bad), 0);
      EXPECT_EQ(loader.counters().bad_samples, 10U);
      EXPECT_EQ(loader.counters().samples, 90U);
      ASSERT_EQ(warnings.size(), 4U) << "three are named, then one line for the epoch";
      EXPECT_THAT(warnings[0], HasSubstr(" is left out: sample "));
      EXPECT_EQ(warnings[3], "epoch 0: 10 bad samples left out");
      if (expected.empty()) expected = batches;
      ASSERT_EQ(batches, expected) << readers << " readers, tickets of " << samples_per_ticket;
    }
  }
  // The remaining rows equal those of a run without bad samples.
  auto whole = std::make_shared<CountingSource>(100);
  Loader reference(single(whole), with(BadSamples::skip, 0));
  const std::vector<Delivered> all = epoch_of(reference);
  for (std::size_t b = 0; b < all.size(); ++b) {
    std::vector<std::int64_t> good;
    for (const std::int64_t id : all[b].ids[0]) {
      if (!is_bad(id)) good.push_back(id);
    }
    EXPECT_EQ(expected[b].ids[0], good);
    for (std::size_t row = 0; row < good.size(); ++row) {
      std::int64_t stored = 0;
      std::memcpy(&stored, expected[b].bytes.data() + row * 8, 8);
      EXPECT_EQ(stored, good[row]);
    }
  }
}

TEST(BadSamples, a_batch_of_bad_samples_only_is_empty) {
  auto source = std::make_shared<CountingSource>(16);
  source->before = [](std::int64_t index) {
    if (index < 8) throw std::runtime_error("no");
  };
  LoaderOptions options = with(BadSamples::skip, 2);
  options.shuffle = false;
  options.max_bad_fraction = 1;
  Loader loader(single(source), options);
  EXPECT_THAT(copy_of(*loader.next()).ids[0], ElementsAre());
  EXPECT_THAT(copy_of(*loader.next()).ids[0], ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(BadSamples, substitutes_are_the_same_for_any_readers_and_on_resume) {
  std::vector<Delivered> expected;
  for (const BadSamples policy : {BadSamples::substitute, BadSamples::quarantine}) {
    for (const int readers : {0, 1, 2, 8}) {
      for (const std::int64_t samples_per_ticket : {1, 100}) {
        Loader loader(single(failing(samples_per_ticket)), with(policy, readers));
        std::vector<Delivered> batches;
        for (int epoch = 0; epoch < 3; ++epoch) {
          for (Delivered& batch : epoch_of(loader)) batches.push_back(std::move(batch));
        }
        const std::vector<std::int64_t> ids = ids_of(batches);
        EXPECT_EQ(ids.size(), 300U) << "batches keep their size";
        EXPECT_EQ(std::count_if(ids.begin(), ids.end(), is_bad), 0);
        EXPECT_EQ(loader.counters().bad_samples, 30U);
        if (expected.empty()) expected = batches;
        ASSERT_EQ(batches, expected);
      }
    }
  }
  for (std::size_t stop = 0; stop < expected.size(); stop += 4) {
    Loader before(single(failing()), with(BadSamples::quarantine, 2));
    std::vector<Delivered> seen;
    while (seen.size() < stop) {
      if (auto batch = before.next()) seen.push_back(copy_of(*batch));
    }
    Loader after(single(failing()), with(BadSamples::quarantine, 1));
    after.load_state(Json::parse(before.state().dump()));
    while (seen.size() < expected.size()) {
      if (auto batch = after.next()) seen.push_back(copy_of(*batch));
    }
    ASSERT_EQ(seen, expected) << "stopped after " << stop;
  }
}

TEST(BadSamples, quarantine_is_part_of_the_state_and_saves_reads) {
  auto source = failing();
  Loader loader(single(source), with(BadSamples::quarantine, 0));
  (void)epoch_of(loader);
  std::set<std::int64_t> listed;
  const Json state = loader.state();
  for (const Json& entry : state["quarantine"]) listed.insert(entry[1].get<std::int64_t>());
  EXPECT_THAT(listed, ElementsAre(7, 17, 27, 37, 47, 57, 67, 77, 87, 97));
  std::set<std::int64_t> asked;
  source->before = [&, inner = source->before](std::int64_t index) {
    asked.insert(index);
    inner(index);
  };
  (void)epoch_of(loader);
  for (const std::int64_t bad : listed) EXPECT_THAT(asked, Not(Contains(bad)));
  EXPECT_EQ(loader.counters().bad_samples, 20U) << "replaced rows count whether or not they were tried";
}

TEST(BadSamples, above_the_ceiling_every_policy_fails) {
  for (const BadSamples policy : {BadSamples::skip, BadSamples::substitute, BadSamples::quarantine}) {
    for (const int readers : {0, 2}) {
      LoaderOptions options = with(policy, readers);
      options.max_bad_fraction = 0.03;
      Loader loader(single(failing()), options);
      const DataError error = error_at_end<DataError>(loader);
      EXPECT_THAT(error.message().what, HasSubstr("of 100 samples of epoch 0 could not be read, more than the fraction 0.03"));
      EXPECT_THAT(error.message().what, HasSubstr("of a.h5 is damaged"));
      EXPECT_THAT(error.message().where, HasSubstr("of epoch 0"));
    }
  }
}

TEST(BadSamples, of_few_samples_one_may_be_bad_and_the_remedy_names_the_key_and_helps) {
  LoaderOptions options = with(BadSamples::skip, 0);
  options.max_bad_fraction = 0.001;
  const auto bad = [](std::int64_t count) {
    auto source = std::make_shared<CountingSource>(50);
    source->before = [count](std::int64_t index) {
      if (index < count) throw DataError({"it is damaged", "", ""});
    };
    return source;
  };
  {
    Loader loader(single(bad(1)), options);
    (void)epoch_of(loader);
    EXPECT_EQ(loader.counters().bad_samples, 1U);
  }
  Loader loader(single(bad(2)), options);
  const DataError error = error_at_end<DataError>(loader);
  EXPECT_THAT(error.message().next, HasSubstr("set data.max_bad_fraction to 0.04"));
  options.max_bad_fraction = 0.04;
  Loader again(single(bad(2)), options);
  (void)epoch_of(again);
  EXPECT_EQ(again.counters().bad_samples, 2U);
  options.max_bad_fraction = 0;
  Loader strict(single(bad(1)), options);
  EXPECT_THAT(error_at_end<DataError>(strict).message().what, HasSubstr("1 of 50 samples"));
}

TEST(BadSamples, the_ceiling_counts_by_epoch_also_after_a_resume) {
  LoaderOptions options = with(BadSamples::skip, 0);
  options.max_bad_fraction = 0.1;  // exactly the share of samples that are bad
  Loader loader(single(failing()), options);
  for (int batch = 0; batch < 9; ++batch) (void)loader.next();
  const Json state = loader.state();
  EXPECT_GT(state["bad_in_epoch"].get<int>(), 0);
  for (int epoch = 0; epoch < 3; ++epoch) (void)epoch_of(loader);
  Loader resumed(single(failing()), options);
  resumed.load_state(state);
  EXPECT_EQ(resumed.state(), state);
  (void)epoch_of(resumed);
  (void)epoch_of(resumed);
}

TEST(BadSamples, when_no_replacement_can_be_read_the_run_fails) {
  auto source = std::make_shared<CountingSource>(50);
  source->before = [](std::int64_t) { throw std::runtime_error("the disk is gone"); };
  LoaderOptions options = with(BadSamples::substitute, 1);
  options.shuffle = false;
  options.max_bad_fraction = 1;
  Loader loader(single(source), options);
  const DataError error = error_at_end<DataError>(loader);
  EXPECT_EQ(error.message().what, "sample 0 can't be read: the disk is gone");
  EXPECT_EQ(error.message().where, "batch 0 of epoch 0, reader 0");
}

TEST(BadSamples, errors_that_are_not_about_a_sample_pass_through) {
  for (const int readers : {0, 2}) {
    auto memory = std::make_shared<CountingSource>(50);
    memory->before = [](std::int64_t index) {
      if (index == 20) throw std::bad_alloc();
    };
    Loader loader(single(memory), with(BadSamples::substitute, readers));
    EXPECT_THROW(error_at_end<DataError>(loader), std::bad_alloc);
    auto device = std::make_shared<CountingSource>(50);
    device->before = [](std::int64_t index) {
      if (index == 20) throw DeviceError({.what = "no device", .where = "", .next = ""});
    };
    Loader other(single(device), with(BadSamples::substitute, readers));
    EXPECT_EQ(error_at_end<DeviceError>(other).message().what, "no device");
  }
}

TEST(BadSamples, names_the_data_set_of_a_group) {
  auto source = std::make_shared<CountingSource>(50);
  source->before = [](std::int64_t index) {
    if (index == 2) throw std::runtime_error("damaged");
  };
  Pipeline pipeline;
  pipeline.datasets = {{"good", std::make_shared<CountingSource>(50)}, {"other", source}};
  LoaderOptions options = with(BadSamples::fail, 0);
  options.shuffle = false;
  Loader loader(std::move(pipeline), options);
  EXPECT_EQ(error_at_end<DataError>(loader).message().what, "sample 2 of data set \"other\" can't be read: damaged");
}

}  // namespace
}  // namespace millrace::data
