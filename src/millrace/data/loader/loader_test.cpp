#include "millrace/data/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "millrace/base/error.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

using test::copy_of;
using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::ids_of;
using test::resident_kib;
using testing::ElementsAre;
using testing::HasSubstr;

LoaderOptions shuffled(std::int64_t batch_size, int readers) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = true;
  options.seed = 42;
  options.readers = readers;
  return options;
}

Pipeline counting(std::int64_t size, std::int64_t samples_per_ticket = 1) {
  return single(std::make_shared<CountingSource>(size, samples_per_ticket));
}

template <class E, class F>
E error_of(const F& call) {
  try {
    call();
  } catch (const E& error) {
    return error;
  }
  throw std::runtime_error("no error was thrown");
}

TEST(Loader, streams_are_the_same_for_any_number_of_readers_and_any_tickets) {
  std::vector<std::vector<Delivered>> expected;
  {
    Loader loader(counting(103), shuffled(8, 0));
    for (int epoch = 0; epoch < 3; ++epoch) expected.push_back(epoch_of(loader));
  }
  EXPECT_NE(ids_of(expected[0]), ids_of(expected[1]));
  for (const int readers : {1, 2, 8}) {
    for (const std::int64_t samples_per_ticket : {1, 3, 1000}) {
      Loader loader(counting(103, samples_per_ticket), shuffled(8, readers));
      for (int epoch = 0; epoch < 3; ++epoch) ASSERT_EQ(epoch_of(loader), expected[static_cast<std::size_t>(epoch)]);
    }
  }
}

TEST(Loader, delays_do_not_change_the_stream) {
  std::vector<Delivered> expected;
  {
    Loader loader(counting(60), shuffled(7, 0));
    expected = epoch_of(loader);
  }
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    auto source = std::make_shared<CountingSource>(60);
    source->before = [seed](std::int64_t index) {
      const std::uint64_t draw = make_key(seed, static_cast<std::uint64_t>(index));
      std::this_thread::sleep_for(std::chrono::microseconds(draw % 8 == 0 ? 300 : 0));
    };
    Loader loader(single(source), shuffled(7, 3));
    ASSERT_EQ(epoch_of(loader), expected) << "seed " << seed;
  }
}

TEST(Loader, an_epoch_holds_every_sample_once_and_says_where) {
  Loader loader(counting(20), shuffled(6, 2));
  EXPECT_EQ(loader.batches_per_epoch(), 4);
  EXPECT_EQ(loader.samples_per_epoch(), 20);
  const std::vector<Delivered> batches = epoch_of(loader);
  ASSERT_EQ(batches.size(), 4U);
  EXPECT_EQ(batches[3].ids[0].size(), 2U);
  EXPECT_THAT(batches[1].positions[0], ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(batches[3].index, 3U);
  std::vector<std::int64_t> ids = ids_of(batches);
  std::sort(ids.begin(), ids.end());
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(loader.epoch(), 1U);
  const Loader::Counters counters = loader.counters();
  EXPECT_EQ(counters.batches, 4U);
  EXPECT_EQ(counters.samples, 20U);
}

TEST(Loader, without_shuffle_samples_come_in_order_and_drop_last_drops) {
  LoaderOptions options = shuffled(6, 0);
  options.shuffle = false;
  options.drop_last = true;
  Loader loader(counting(20), options);
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  EXPECT_EQ(loader.samples_per_epoch(), 18);
  const std::vector<std::int64_t> ids = ids_of(epoch_of(loader));
  ASSERT_EQ(ids.size(), 18U);
  for (std::int64_t i = 0; i < 18; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
}

TEST(Loader, fields_are_aligned_to_64_bytes) {
  Loader loader(counting(20), shuffled(3, 1));
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  for (const std::byte* data : batch->groups[0].data) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
}

TEST(Loader, two_ranks_split_the_stream_of_one) {
  Loader whole(counting(45), shuffled(8, 0));
  for (const int readers : {0, 2}) {
    LoaderOptions options = shuffled(4, readers);
    options.world_size = 2;
    Loader first(counting(45), options);
    options.rank = 1;
    Loader second(counting(45), options);
    ASSERT_EQ(first.batches_per_epoch(), 6);
    ASSERT_EQ(second.batches_per_epoch(), 6);
    whole.restart();
    while (auto batch = whole.next()) {
      const Delivered a = copy_of(*first.next());
      const Delivered b = copy_of(*second.next());
      std::vector<std::int64_t> both = a.ids[0];
      both.insert(both.end(), b.ids[0].begin(), b.ids[0].end());
      EXPECT_EQ(both, copy_of(*batch).ids[0]);
    }
    EXPECT_FALSE(first.next());
  }
}

TEST(Loader, groups_keep_their_data_sets_apart) {
  const auto pipeline = [] {
    Pipeline p;
    p.datasets = {{"short", std::make_shared<CountingSource>(10)}, {"long", std::make_shared<CountingSource>(25)}};
    return p;
  };
  Loader loader(pipeline(), shuffled(4, 0));
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  const std::vector<Delivered> batches = epoch_of(loader);
  EXPECT_EQ(batches[0].ids[0].size(), 4U);
  EXPECT_EQ(batches[2].ids[0].size(), 2U);
  EXPECT_EQ(batches[3].ids[0].size(), 0U) << "a data set that is through leaves its group empty";
  EXPECT_EQ(batches[6].ids[1].size(), 1U);
  std::vector<std::int64_t> ids = ids_of(batches, 1);
  std::sort(ids.begin(), ids.end());
  for (std::int64_t i = 0; i < 25; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);

  loader.restart();
  EXPECT_EQ(loader.next()->groups[1].name, "long");
  Loader readers(pipeline(), shuffled(4, 3));
  EXPECT_EQ(epoch_of(readers), batches);
  LoaderOptions dropping = shuffled(4, 0);
  dropping.drop_last = true;
  Loader full(pipeline(), dropping);
  EXPECT_EQ(full.samples_per_epoch(), 8 + 24);
  for (const Delivered& batch : epoch_of(full)) EXPECT_EQ(batch.ids[0].size() % 4, 0U);
}

TEST(Loader, resumes_at_every_batch_as_if_never_interrupted) {
  std::vector<Delivered> expected;
  {
    Loader loader(counting(23), shuffled(4, 0));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (Delivered& batch : epoch_of(loader)) expected.push_back(std::move(batch));
    }
  }
  for (std::size_t stop = 0; stop <= 12; ++stop) {
    Loader before(counting(23), shuffled(4, 2));
    std::vector<Delivered> seen;
    while (seen.size() < stop) {
      if (auto batch = before.next()) seen.push_back(copy_of(*batch));
    }
    const Json state = Json::parse(before.state().dump());
    Loader after(counting(23), shuffled(4, stop % 3 == 0 ? 0 : 5));
    after.load_state(state);
    EXPECT_EQ(after.state(), state);
    while (seen.size() < expected.size()) {
      if (auto batch = after.next()) seen.push_back(copy_of(*batch));
    }
    ASSERT_EQ(seen, expected) << "stopped after " << stop;
  }
}

TEST(Loader, state_at_the_end_of_an_epoch_still_has_to_tell_it) {
  Loader loader(counting(8), shuffled(4, 0));
  (void)loader.next();
  (void)loader.next();
  const Json state = loader.state();
  Loader other(counting(8), shuffled(4, 1));
  other.load_state(state);
  EXPECT_EQ(other.epoch(), 0U);
  EXPECT_FALSE(other.next());
  EXPECT_EQ(other.next()->epoch, 1U);
}

TEST(Loader, state_of_other_data_or_another_order_is_refused_with_both_values) {
  const Json state = Loader(counting(23), shuffled(4, 0)).state();
  const auto refused = [&](Pipeline pipeline, const LoaderOptions& options) {
    Loader loader(std::move(pipeline), options);
    return error_of<SnapshotError>([&] { loader.load_state(state); }).message().what;
  };
  EXPECT_EQ(refused(counting(24), shuffled(4, 0)),
            "the snapshot was made with data of fingerprint \"counting 23\", this run has \"counting 24\"");
  LoaderOptions other = shuffled(4, 0);
  other.seed = 43;
  EXPECT_EQ(refused(counting(23), other), "the snapshot was made with seed 42, this run has 43");
  EXPECT_EQ(refused(counting(23), shuffled(5, 0)), "the snapshot was made with a batch size over all ranks of 4, this run has 5");
  other = shuffled(4, 0);
  other.shuffle = false;
  EXPECT_EQ(refused(counting(23), other), "the snapshot was made with shuffle true, this run has false");
  other = shuffled(2, 0);
  other.world_size = 2;
  Loader two_ranks(counting(23), other);
  two_ranks.load_state(state);  // accepted, because the global batch is the same
}

TEST(Loader, damaged_states_are_refused) {
  Loader loader(counting(23), shuffled(4, 0));
  const Json good = loader.state();
  const auto what = [&](const Json& state) { return error_of<SnapshotError>([&] { loader.load_state(state); }).message().what; };
  EXPECT_EQ(what(Json::array()), "the loader's state is not an object");
  const auto with = [&](const char* key, const Json& value) {
    Json state = good;
    state[key] = value;
    return what(state);
  };
  EXPECT_EQ(with("epoch", "x"), "\"epoch\" of the loader's state is \"\\\"x\\\"\"");
  EXPECT_EQ(with("epoch", -1), "\"epoch\" of the loader's state is \"-1\"");
  EXPECT_THAT(with("epoch", std::uint64_t{1} << 63U), HasSubstr("is at batch 0 of epoch 9223372036854775808"));
  EXPECT_THAT(with("next_batch", 7), HasSubstr("is at batch 7 of epoch 0, but an epoch has 6 batches"));
  EXPECT_THAT(with("version", 2), HasSubstr("version 2"));
  EXPECT_THAT(with("quarantine", Json::array({Json::array({0, 99})})), HasSubstr("sample 99 of data set 0"));
  EXPECT_THAT(with("quarantine", Json::array({1})), HasSubstr("not [data set, sample]"));
  EXPECT_THAT(with("quarantine", 1), HasSubstr("no list"));
  Json missing = good;
  missing.erase("seed");
  EXPECT_EQ(what(missing), "the loader's state has no \"seed\"");
  loader.load_state(good);
}

TEST(Loader, restart_gives_the_epoch_from_its_beginning) {
  Loader loader(counting(23), shuffled(4, 2));
  const std::vector<Delivered> first = epoch_of(loader);
  const std::vector<Delivered> second = epoch_of(loader);
  loader.restart(1);
  EXPECT_EQ(epoch_of(loader), second);
  loader.restart();
  (void)loader.next();
  loader.restart();
  EXPECT_EQ(epoch_of(loader), first);
}

TEST(Loader, batches_outlive_the_loader) {
  for (const int readers : {0, 2}) {
    std::optional<HostBatch> batch;
    {
      Loader loader(counting(23), shuffled(4, readers));
      batch = loader.next();
    }
    std::int64_t id = 0;
    std::memcpy(&id, batch->groups[0].data[0], 8);
    EXPECT_EQ(id, batch->groups[0].indices[0]);
    std::thread([moved = std::move(*batch)]() mutable { moved.slot.reset(); }).join();
  }
}

TEST(Loader, a_consumer_that_keeps_every_batch_is_warned_once_and_served) {
  for (const int readers : {0, 2}) {
    std::vector<std::string> warnings;
    LoaderOptions options = shuffled(4, readers);
    options.adapts = false;  // the message names the number of slots, which must not change
    options.warn = [&](const std::string& line) { warnings.push_back(line); };
    Loader loader(counting(100), options);
    Loader reference(counting(100), shuffled(4, 0));
    std::deque<HostBatch> kept;
    while (auto batch = loader.next()) kept.push_back(std::move(*batch));
    for (const HostBatch& batch : kept) EXPECT_EQ(copy_of(batch), copy_of(*reference.next()));
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(warnings[0], "4 batches are kept at once: each takes another 128 B; clone the tensors that are to be kept");
  }
}

TEST(Loader, a_consumer_that_keeps_most_batches_is_named) {
  std::string warnings;
  LoaderOptions options = shuffled(4, 2);
  options.warn = [&](const std::string& line) { warnings += line; };
  options.prefetch = 8;
  Loader loader(counting(100), options);
  for (std::array<HostBatch, 6> kept; auto batch = loader.next();) kept.at(batch->index % 6) = std::move(*batch);
  EXPECT_THAT(warnings, testing::MatchesRegex("the recipe holds [4-7] of the loader's [0-9]+ batches, so the readers wait .*"));
}

TEST(Loader, a_consumer_that_keeps_more_than_the_budget_is_stopped) {
  for (const int readers : {0, 2}) {
    LoaderOptions options = shuffled(4, readers);
    options.max_buffer_bytes = 6 * 128;
    options.adapts = false;
    Loader loader(counting(100), options);
    std::deque<HostBatch> kept;
    const DataError error = error_of<DataError>([&] {
      for (;;) kept.push_back(loader.next().value());
    });
    EXPECT_EQ(kept.size(), 6U);
    EXPECT_THAT(error.message().what, HasSubstr("6 batches are kept, and one more would enlarge the loader's buffer to 896 B"));
    EXPECT_EQ(error.message().where, "batch 6 of epoch 0");
    kept.pop_front();
    EXPECT_EQ(loader.next()->index, 6U) << "it goes on when one is let go";
  }
}

TEST(Loader, mistakes_in_options_are_named) {
  const auto what = [](Pipeline pipeline, const LoaderOptions& options) {
    return error_of<ConfigError>([&] { Loader loader(std::move(pipeline), options); }).message().what;
  };
  EXPECT_EQ(what({}, {}), "the pipeline has no data set");
  EXPECT_EQ(what(counting(0), {}), "the data set has no samples");
  LoaderOptions options;
  options.batch_size = 0;
  EXPECT_EQ(what(counting(5), options), "data.batch_size is 0");
  options.batch_size = 8;
  options.drop_last = true;
  EXPECT_EQ(what(counting(5), options),
            "no batch is left of the data set: 5 samples, batch size 8, and drop_last drops the incomplete batch");
  options.drop_last = false;
  options.max_buffer_bytes = 300;
  EXPECT_EQ(what(counting(5), options), "one batch takes 192 B, and two must fit into the loader's buffer of 300 B");
  options.batch_size = std::int64_t{1} << 62U;
  EXPECT_THAT(what(counting(5), options), HasSubstr("too large to address"));
}

TEST(Loader, batches_larger_than_the_usual_buffer_get_a_larger_one) {
  class Vast final : public Source {  // no byte of it is ever touched
   public:
    [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
    [[nodiscard]] std::int64_t size() const override { return 4; }
    [[nodiscard]] std::string fingerprint() const override { return "vast"; }
    void read(std::span<const std::int64_t>, Rows, const ReadRandom&) const override {}

   private:
    std::vector<Field> fields_{{"x", DType::u8, {std::int64_t{600} << 20U}}};
  };
  LoaderOptions options;
  options.batch_size = 1;
  options.readers = 0;
  Loader loader(single(std::make_shared<Vast>()), options);
  const HostBatch first = *loader.next();
  EXPECT_EQ(loader.next()->index, first.index + 1);
}

TEST(Loader, data_without_samples_is_named_by_its_split_and_its_files) {
  class Empty final : public Source {
   public:
    [[nodiscard]] std::span<const Field> fields() const override { return {}; }
    [[nodiscard]] std::int64_t size() const override { return 0; }
    [[nodiscard]] std::string fingerprint() const override { return "empty"; }
    [[nodiscard]] std::vector<FileStamp> stamps() const override { return {{"held/x.npy", 80, ""}, {"held/y.npy", 80, ""}}; }
    void read(std::span<const std::int64_t>, Rows, const ReadRandom&) const override {}
  };
  LoaderOptions options;
  options.called = "the validation data";
  const auto refused = [&](const std::string& name) {
    Pipeline pipeline;
    pipeline.datasets = {{name, std::make_shared<Empty>()}};
    return error_of<ConfigError>([&] { const Loader loader(pipeline, options); }).message();
  };
  EXPECT_EQ(refused("").what, "the validation data has no samples");
  EXPECT_EQ(refused("").where, "files held/x.npy; held/y.npy");
  EXPECT_EQ(refused("left").what, "data set \"left\" of the validation data has no samples");
}

TEST(Loader, chooses_no_readers_for_cheap_samples_and_says_so) {
  Loader cheap(counting(100, 1000), shuffled(4, -1));
  EXPECT_EQ(cheap.readers(), 0);
  EXPECT_THAT(cheap.readers_reason(), testing::MatchesRegex("no readers: a batch is read in [0-9]+ us in the calling thread"));
  auto slow = std::make_shared<CountingSource>(100);
  slow->before = [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  Loader dear(single(slow), shuffled(4, -1));
  EXPECT_GE(dear.readers(), 1);
  EXPECT_THAT(dear.readers_reason(),
              testing::MatchesRegex("[0-9]+ readers?: a batch takes [0-9.]+ ms to read, mostly waiting; [0-9]+ cores"));
  Loader told(counting(100), shuffled(4, 2));
  EXPECT_EQ(told.readers_reason(), "2 readers: as configured");
}

TEST(Loader, more_readers_are_taken_when_they_sleep_and_the_stream_is_the_same) {
  std::vector<Delivered> expected;
  {
    Loader loader(counting(400), shuffled(4, 0));
    expected = epoch_of(loader);
  }
  auto source = std::make_shared<CountingSource>(400);
  source->before = [](std::int64_t index) { std::this_thread::sleep_for(std::chrono::milliseconds(index % 40 == 0 ? 40 : 4)); };
  std::vector<std::string> notes;
  LoaderOptions options = shuffled(4, -1);
  options.note = [&](const std::string& line) { notes.push_back(line); };
  Loader loader(single(source), options);
  const int before = loader.readers();
  ASSERT_EQ(epoch_of(loader), expected);
  loader.restart();
  ASSERT_EQ(epoch_of(loader), expected);
  ASSERT_FALSE(notes.empty());
  EXPECT_GT(loader.readers(), before);
  EXPECT_THAT(notes[0], testing::MatchesRegex("loader: [0-9]+ readers, [0-9]+ batches ahead: the step waited [0-9]+ % of the "
                                              "time; readers sleep [0-9]+ % of their time"));
}

TEST(Loader, announces_every_sample_some_batches_before_it_is_read) {
  for (const std::int64_t samples_per_ticket : {1, 3}) {
    auto source = std::make_shared<CountingSource>(100, samples_per_ticket);
    source->is_advised = true;
    Loader loader(single(source), shuffled(4, 0));
    const std::vector<std::int64_t> first = ids_of(epoch_of(loader));
    const auto ahead = static_cast<std::ptrdiff_t>(samples_per_ticket == 1 ? 16 : 32);  // samples of 16 tickets
    ASSERT_EQ(source->advised.size(), 100U);
    EXPECT_TRUE(std::equal(first.begin() + ahead, first.end(), source->advised.begin()));
    const std::vector<std::int64_t> second = ids_of(epoch_of(loader));
    EXPECT_TRUE(std::equal(second.begin(), second.begin() + ahead, source->advised.begin() + (100 - ahead)))
        << "the next epoch's first samples come at the end of this one";
  }
}

TEST(Loader, announces_nothing_when_looking_ahead_is_off) {
  for (const Grouping grouping : {Grouping::each, Grouping::mix}) {
    auto source = std::make_shared<CountingSource>(100);
    source->is_advised = true;
    Pipeline pipeline;
    pipeline.grouping = grouping;
    for (const char* name : {"a", "b"}) pipeline.datasets.push_back({name, source});
    LoaderOptions options = shuffled(4, 0);
    options.looks_ahead = false;
    Loader loader(pipeline, options);
    (void)epoch_of(loader);
    EXPECT_TRUE(source->advised.empty());
  }
}

TEST(Loader, ends_while_a_reader_is_stuck) {
  auto source = std::make_shared<CountingSource>(100);
  auto open = std::make_shared<std::atomic<bool>>(false);
  auto inside = std::make_shared<std::atomic<bool>>(false);
  source->before = [open, inside](std::int64_t index) {
    if (index != 5) return;
    *inside = true;
    inside->notify_all();
    open->wait(false);
  };
  std::vector<std::string> warnings;
  LoaderOptions options = shuffled(4, 2);
  options.shuffle = false;
  options.warn = [&](const std::string& line) { warnings.push_back(line); };
  std::weak_ptr<CountingSource> alive = source;
  {
    Loader loader(single(std::move(source)), options);
    EXPECT_EQ(copy_of(*loader.next()).ids[0].size(), 4U);
    inside->wait(false);
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], testing::MatchesRegex("the loader stops without waiting for a stuck reader: reader [01] has been "
                                                 "reading sample 5 \\(counting.h5 row 5\\) for .*"));
  *open = true;
  open->notify_all();
  while (!alive.expired()) std::this_thread::yield();
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kSlackKib = 512 * 1024;  // AddressSanitizer keeps freed memory for a while, to find later uses
#elif defined(__SANITIZE_THREAD__)
constexpr std::size_t kSlackKib = 16 * 1024;  // ThreadSanitizer's own memory for each page that is touched
#else
constexpr std::size_t kSlackKib = 2048;
#endif

TEST(Loader, memory_stays_flat_over_epochs_and_early_stops) {
  for (const int readers : {0, 2}) {
    Loader loader(counting(64, 16), shuffled(16, readers));
    for (int epoch = 0; epoch < 100; ++epoch) (void)epoch_of(loader);
    const std::size_t before = resident_kib();
    for (int epoch = 0; epoch < 1000; ++epoch) {
      while (loader.next()) {
      }
    }
    for (int stop = 0; stop < 10'000; ++stop) {
      loader.restart(static_cast<std::uint64_t>(stop));
      for (int batch = 0; batch < stop % 3; ++batch) ASSERT_TRUE(loader.next());
    }
    EXPECT_LT(resident_kib(), before + kSlackKib) << readers << " readers";
  }
}

}  // namespace
}  // namespace millrace::data
