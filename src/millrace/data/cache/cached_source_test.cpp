#include "millrace/data/cache/cached_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/memory_source.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::resident_kib;
using testing::HasSubstr;

std::shared_ptr<CountingSource> counting(Keeps keeps, std::int64_t size = 103, std::int64_t samples_per_ticket = 1) {
  auto source = std::make_shared<CountingSource>(size, samples_per_ticket);
  source->kept = keeps;
  return source;
}

LoaderOptions shuffled(int readers) {
  LoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 42;
  options.readers = readers;
  return options;
}

// A pipeline with `cache` in front of its data set.
Pipeline cached(std::shared_ptr<const Source> source, const std::shared_ptr<SampleCache>& cache) {
  Pipeline pipeline = single(std::move(source));
  use_cache(pipeline, cache);
  return pipeline;
}

std::vector<std::vector<Delivered>> epochs_of(Loader& loader, int count) {
  std::vector<std::vector<Delivered>> epochs;
  for (int epoch = 0; epoch < count; ++epoch) epochs.push_back(epoch_of(loader));
  return epochs;
}

TEST(CachedSource, streams_are_equal_with_and_without_for_any_readers_and_budget) {
  for (const Keeps keeps : {Keeps::rows, Keeps::parts}) {
    Loader plain(single(counting(keeps)), shuffled(0));
    const auto expected = epochs_of(plain, 3);
    const std::uint64_t payload = cache_payload(*counting(keeps));
    for (const std::uint64_t budget : {payload, payload / 2, std::uint64_t{103 * 16}, std::uint64_t{1}}) {
      for (const int readers : {0, 1, 2, 8}) {
        for (const std::int64_t samples_per_ticket : {1, 5}) {
          const auto cache = std::make_shared<SampleCache>(budget);
          Loader loader(cached(counting(keeps, 103, samples_per_ticket), cache), shuffled(readers));
          ASSERT_EQ(epochs_of(loader, 3), expected) << "budget " << budget << ", readers " << readers;
          EXPECT_LE(cache->counters().bytes, budget);
        }
      }
    }
  }
}

TEST(CachedSource, hits_all_from_the_second_epoch_on_and_gives_its_bytes_back) {
  for (const Keeps keeps : {Keeps::rows, Keeps::parts}) {
    const auto source = counting(keeps);
    const auto cache = std::make_shared<SampleCache>(cache_payload(*source));
    {
      Loader loader(cached(source, cache), shuffled(0));  // without reader threads, which would begin a fifth epoch
      for (int epoch = 0; epoch < 4; ++epoch) (void)epoch_of(loader);
    }
    EXPECT_EQ(source->reads, 103 + (keeps == Keeps::rows ? 1 : 0)) << "a sample of rows is read to see that nothing is drawn";
    const Cache::Counters counters = cache->counters();
    EXPECT_EQ(counters.misses, 103U);
    EXPECT_EQ(counters.hits, 3 * 103U);
    EXPECT_DOUBLE_EQ(counters.hit_rate(), 0.75);
    EXPECT_EQ(counters.bytes, 0U) << "the loader is gone";
  }
}

TEST(CachedSource, keeps_what_came_first_when_not_all_fits) {
  const auto source = counting(Keeps::rows, 100);
  const std::uint64_t payload = cache_payload(*source);
  const auto cache = std::make_shared<SampleCache>(1600 + (payload - 1600) / 4);  // room for the table and 25 rows
  Loader loader(cached(source, cache), shuffled(0));
  (void)epoch_of(loader);
  const std::uint64_t bytes = cache->counters().bytes;
  (void)epoch_of(loader);
  EXPECT_EQ(cache->counters().hits, 25U);
  EXPECT_EQ(cache->counters().bytes, bytes);
  EXPECT_EQ(source->reads, 1 + 100 + 75);
}

// Sample i is made of part i and of one of three further parts, which is drawn.
class DrawnSource final : public Source {
 public:
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return 40; }
  [[nodiscard]] std::string fingerprint() const override { return "drawn"; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::array<std::int64_t, 2> parts{};
      parts_of(indices[i], random.part(i, 1), parts);
      std::memcpy(rows.row(0, i, 16), parts.data(), 16);
    }
    wholes += static_cast<std::int64_t>(indices.size());
  }
  [[nodiscard]] Keeps keeps() const override { return Keeps::parts; }
  [[nodiscard]] std::int64_t parts() const override { return 43; }
  [[nodiscard]] std::size_t parts_per_sample() const override { return 2; }
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const override {
    parts[0] = index;
    parts[1] = 40 + static_cast<std::int64_t>(random(0).below(3));
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return 8; }
  void load(std::int64_t part, std::span<std::byte> bytes) const override {
    ++loads;
    std::memcpy(bytes.data(), &part, 8);
  }
  void finish(std::int64_t, std::span<const std::span<const std::byte>> parts, Rows rows, const ReadRandom&) const override {
    for (std::size_t p = 0; p < 2; ++p) std::memcpy(rows.row(0, 0, 16) + 8 * p, parts[p].data(), 8);
  }
  mutable std::atomic<std::int64_t> wholes{0}, loads{0};

 private:
  Field field_{"parts", DType::i64, {2}};
};

TEST(CachedSource, parts_that_samples_share_are_loaded_once) {
  Loader plain(single(std::make_shared<DrawnSource>()), shuffled(0));
  const auto expected = epochs_of(plain, 3);
  const auto source = std::make_shared<DrawnSource>();
  const std::uint64_t payload = cache_payload(*source);
  {
    Loader loader(cached(source, std::make_shared<SampleCache>(payload)), shuffled(0));
    EXPECT_EQ(epochs_of(loader, 3), expected);
    EXPECT_EQ(source->loads, 43);
    EXPECT_EQ(source->wholes, 0);
  }
  for (const std::uint64_t budget : {payload / 2, std::uint64_t{43 * 16 + 1}}) {  // the second budget holds only the table
    for (const int readers : {0, 3}) {
      Loader loader(cached(std::make_shared<DrawnSource>(), std::make_shared<SampleCache>(budget)), shuffled(readers));
      EXPECT_EQ(epochs_of(loader, 3), expected) << budget << " bytes, " << readers << " readers";
    }
  }
}

TEST(CachedSource, a_sample_that_fails_is_not_kept_and_costs_nothing) {
  for (const Keeps keeps : {Keeps::rows, Keeps::parts}) {
    const auto source = counting(keeps, 40);
    source->before = [](std::int64_t index) {
      if (index == 7) throw DataError({.what = "sample 7 is damaged", .where = "a.h5", .next = ""});
    };
    LoaderOptions options = shuffled(2);
    options.bad_samples = BadSamples::skip;
    options.max_bad_fraction = 1;
    const auto cache = std::make_shared<SampleCache>(1 << 20);
    Loader loader(cached(source, cache), options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(test::ids_of(epoch_of(loader)).size(), 39U);
      EXPECT_EQ(loader.counters().bad_samples, static_cast<std::uint64_t>(epoch) + 1);
    }
    EXPECT_EQ(cache->counters().bytes, 40 * 16 + 39 * (16 + (keeps == Keeps::rows ? 20U : 8U)));
  }
}

TEST(CachedSource, look_ahead_leaves_out_what_is_kept) {
  const auto source = counting(Keeps::parts, 64);
  source->is_advised = true;
  const auto cache = std::make_shared<SampleCache>(1 << 20);
  Loader loader(cached(source, cache), shuffled(0));
  (void)epoch_of(loader);
  EXPECT_GE(source->advised.size(), 48U);
  source->advised.clear();
  (void)epoch_of(loader);
  EXPECT_TRUE(source->advised.empty());
}

TEST(CacheChoice, decides_by_size_against_free_memory_and_says_why) {
  const std::vector<Dataset> datasets = {{"", counting(Keeps::parts, 1000)}};
  const auto choose = [&](std::optional<CacheWish> wish, std::uint64_t available, std::uint64_t budget = 0) {
    return choose_cache(datasets, wish, available, budget);
  };
  ASSERT_EQ(cache_payload(*datasets[0].source), 40'000U);
  EXPECT_EQ(choose(CacheWish::off, 1 << 30).value, nullptr);
  EXPECT_EQ(choose(std::nullopt, 80'000).reason, "ram: 40 kB to keep, half of the free memory is 40 kB");
  EXPECT_NE(choose(std::nullopt, 80'000).value, nullptr);
  EXPECT_EQ(choose(std::nullopt, 79'998).value, nullptr);
  EXPECT_EQ(choose(std::nullopt, 40'000).reason, "off: 40 kB to keep, half of the free memory is 20 kB");
  EXPECT_EQ(choose(CacheWish::ram, 40'000).reason, "ram, in part: 40 kB to keep, half of the free memory is 20 kB");
  EXPECT_EQ(choose(CacheWish::ram, 40'000).value->counters().budget_bytes, 20'000U);
  EXPECT_EQ(choose(std::nullopt, 0, 50'000).reason, "ram: 40 kB to keep, data.cache_bytes is 50 kB");
  const std::vector<Dataset> nothing = {{"", counting(Keeps::nothing)}};
  EXPECT_EQ(choose_cache(nothing, CacheWish::ram, 1 << 30).reason,
            "off: samples are made anew at each read, as their source says");
  const Dataset in_memory = {"", counting(Keeps::memory)};
  EXPECT_EQ(choose_cache(std::vector{in_memory, in_memory}, CacheWish::ram, 1 << 30).reason,
            "off: the data is in memory already");
  EXPECT_EQ(choose_cache(std::vector{in_memory, nothing[0]}, CacheWish::ram, 1 << 30).reason,
            "off: samples are made anew at each read, as their source says");
}

// A source that promises Keeps::rows although it draws random numbers for some rows.
class BrokenPromise final : public Source {
 public:
  explicit BrokenPromise(std::int64_t first_drawn) : first_drawn_(first_drawn) {}
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return 40; }
  [[nodiscard]] std::string fingerprint() const override { return "broken"; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint32_t noise = indices[i] < first_drawn_ ? 0 : random.part(i, 1)(0)();
      std::memcpy(rows.row(0, i, 4), &noise, 4);
    }
  }

 private:
  Field field_{"noise", DType::u32, {}};
  std::int64_t first_drawn_;
};

TEST(Keeping, rows_that_are_drawn_are_refused_when_the_pipeline_is_built) {
  Pipeline pipeline;
  pipeline.datasets = {{"patches", std::make_shared<BrokenPromise>(0)}, {"others", counting(Keeps::rows)}};
  const std::string what =
      "data set \"patches\" draws random numbers in read(): a cache of its rows would repeat the numbers of the first epoch";
  const Message cached = refusal_message<ConfigError>([&] {
    Pipeline copy = pipeline;
    use_cache(copy, std::make_shared<SampleCache>(1 << 20));
  });
  EXPECT_EQ(cached.what, what);
  EXPECT_EQ(cached.where, "keeps() of its source, which says Keeps::rows");
  EXPECT_EQ(cached.next, "return Keeps::parts and draw in finish(), or return Keeps::nothing");
  EXPECT_EQ(refusal_message<ConfigError>([&] { const Loader loader(pipeline, shuffled(0)); }).what, what)
      << "without a cache too";
}

TEST(Keeping, rows_that_are_drawn_now_and_then_are_refused_before_the_first_is_kept) {
  Loader loader(cached(std::make_shared<BrokenPromise>(39), std::make_shared<SampleCache>(1 << 20)), shuffled(0));
  EXPECT_THAT(refusal_message<ConfigError>([&] { (void)epoch_of(loader); }).what,
              HasSubstr("the data set draws random numbers in read()"));
}

TEST(Keeping, parts_without_bytes_are_refused_when_the_pipeline_is_built) {
  class Sizeless final : public Source {
   public:
    [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
    [[nodiscard]] std::int64_t size() const override { return 4; }
    [[nodiscard]] std::string fingerprint() const override { return "sizeless"; }
    [[nodiscard]] Keeps keeps() const override { return Keeps::parts; }
    void read(std::span<const std::int64_t>, Rows, const ReadRandom&) const override {}

   private:
    Field field_{"x", DType::u8, {8}};
  };
  const Pipeline pipeline = single(std::make_shared<Sizeless>());
  const Message refused = refusal_message<ConfigError>([&] {
    Pipeline copy = pipeline;
    use_cache(copy, std::make_shared<SampleCache>(1 << 20));
  });
  EXPECT_EQ(refused.what, "part 0 of the data set has 0 bytes, but should be cached");
  EXPECT_EQ(refused.where, "part_bytes() of its source, which says Keeps::parts");
  EXPECT_EQ(refused.next, "return the number of bytes that load() writes");
  EXPECT_THROW(const Loader loader(pipeline, shuffled(0)), ConfigError);
}

// A large source: one per cent of its bytes is more than the allocator's rounding.
class BulkySource final : public Source {
 public:
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return 256; }
  [[nodiscard]] std::string fingerprint() const override { return "bulky"; }
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::memset(rows.row(0, i, field_.bytes()), static_cast<int>(indices[i]), field_.bytes());
    }
  }

 private:
  Field field_{"volume", DType::u8, {256, 1024}};
};

TEST(CachedSource, memory_stays_flat_over_20_epochs_with_the_cache_off_and_on) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  for (const bool on : {false, true}) {
    const auto source = std::make_shared<BulkySource>();
    const auto cache = on ? std::make_shared<SampleCache>(cache_payload(*source)) : nullptr;
    LoaderOptions options = shuffled(2);
    options.adapts = false;  // keeps the number of slots constant, because this test measures the cache
    Loader loader(cached(source, cache), options);
    (void)loader.next();
    const std::size_t before = resident_kib();
    loader.restart();
    const auto pass = [&] {
      while (loader.next()) {
      }
    };
    pass();
    const std::size_t first = resident_kib();
    if (!on) {
      EXPECT_LT(first, before + 8 * 1024) << "off takes nothing";
    }
    for (int epoch = 1; epoch < 20; ++epoch) pass();
    EXPECT_LE(resident_kib(), first + first / 100) << (on ? "on" : "off");
  }
}

}  // namespace
}  // namespace millrace::data
