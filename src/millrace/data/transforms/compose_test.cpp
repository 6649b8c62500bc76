#include "millrace/data/transforms/compose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/sources/memory_source.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::rows_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using SourcePtr = std::shared_ptr<const Source>;

std::shared_ptr<CountingSource> counting_as(Keeps keeps, std::int64_t size = 40, std::string print = "counting") {
  auto source = std::make_shared<CountingSource>(size);
  source->kept = keeps;
  source->print = std::move(print);
  return source;
}

SourcePtr numbers(std::vector<float> values) {
  std::vector<std::int64_t> rows(values.size());
  std::iota(rows.begin(), rows.end(), 0);
  return std::make_shared<MemorySource>(
      std::vector{memory_array("x", {}, std::move(values)), memory_array("row", {}, std::move(rows))});
}

// Turns the field "id" of a CountingSource into "drawn": id * 2^32 + a random number of the sample.
SourcePtr drawn_ids(SourcePtr source, const std::string& from = "id") {
  return map(std::move(source), {.name = "drawn",
                                 .makes = {{"drawn", DType::i64, {}}},
                                 .drops = {from},
                                 .function = [from](const Sample& in, const MutableSample& out, const SampleRandom& random) {
                                   out.values<std::int64_t>("drawn")[0] = (in.values<std::int64_t>(from)[0] << 32) + random()();
                                 }});
}

LoaderOptions by_eights(int readers) {
  LoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 42;
  options.readers = readers;
  return options;
}

std::vector<Delivered> two_epochs(Loader& loader) {
  std::vector<Delivered> all = epoch_of(loader);
  const std::vector<Delivered> second = epoch_of(loader);
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

TEST(Map, makes_drops_and_passes_fields_on) {
  const SourcePtr source =
      map(numbers({1, 2, 3}), {.name = "square",
                               .makes = {{"x", DType::f64, {2}}, {"sign", DType::u8, {}}},
                               .function = [](const Sample& in, const MutableSample& out, const SampleRandom&) {
                                 const float x = in.values<float>("x")[0];
                                 const auto to = out.values<double>("x");
                                 to[0] = x;
                                 to[1] = static_cast<double>(x) * x;
                                 out.values<std::uint8_t>("sign")[0] = in.values<std::int64_t>("row")[0] > 0 ? 1 : 0;
                               }});
  EXPECT_THAT(source->fields(),
              ElementsAre(Field{"x", DType::f64, {2}}, Field{"row", DType::i64, {}}, Field{"sign", DType::u8, {}}))
      << "what is made stands where it stood, or at the end";
  EXPECT_THAT(rows_of<double>(*source, {2, 0}), ElementsAre(3, 9, 1, 1));
  EXPECT_THAT(rows_of<std::int64_t>(*source, {2, 0}, 0, 1), ElementsAre(2, 0));
  EXPECT_THAT(rows_of<std::uint8_t>(*source, {2, 0}, 0, 2), ElementsAre(1, 0));
  const SourcePtr dropped = map(source, {.name = "rows only", .makes = {}, .drops = {"x", "sign"}, .function = {}});
  EXPECT_THAT(dropped->fields(), ElementsAre(Field{"row", DType::i64, {}}));
  EXPECT_THAT(rows_of<std::int64_t>(*dropped, {1}), ElementsAre(1));
  EXPECT_THAT(source->fingerprint(),
              HasSubstr("map \"square\" to x f64[2], row i64[], sign u8[] of (memory x f32[] x 3 crc32c "));
  EXPECT_EQ(source->keeps(), Keeps::memory) << "a copy of it would save nothing";
}

TEST(Map, streams_are_equal_with_the_cache_off_and_on_for_any_readers) {
  for (const Keeps keeps : {Keeps::rows, Keeps::parts, Keeps::nothing}) {
    const auto make = [&] { return drawn_ids(repeat(counting_as(keeps), 2)); };
    Loader plain(single(make()), by_eights(0));
    const std::vector<Delivered> expected = two_epochs(plain);
    EXPECT_NE(expected[0].bytes, expected[10].bytes);
    const std::uint64_t payload = cache_payload(*make());
    for (const std::uint64_t budget : {payload, payload / 2, std::uint64_t{0}}) {
      for (const int readers : {0, 1, 3}) {
        Pipeline pipeline = single(make());
        if (budget > 0) use_cache(pipeline, std::make_shared<SampleCache>(budget));
        Loader loader(pipeline, by_eights(readers));
        ASSERT_EQ(two_epochs(loader), expected) << "budget " << budget << ", readers " << readers;
      }
    }
  }
}

TEST(Map, goes_on_in_the_middle_of_an_epoch_with_the_same_numbers) {
  const auto make = [] { return single(drawn_ids(counting_as(Keeps::rows))); };
  Loader whole(make(), by_eights(0));
  const std::vector<Delivered> expected = two_epochs(whole);
  Loader before(make(), by_eights(2));
  for (int batch = 0; batch < 7; ++batch) (void)before.next();  // the sixth call reports the end of the first epoch
  const Json state = before.state();
  Pipeline pipeline = make();
  use_cache(pipeline, std::make_shared<SampleCache>(1 << 20));
  Loader after(pipeline, by_eights(3));
  after.load_state(state);
  for (std::size_t batch = 6; batch < expected.size(); ++batch) EXPECT_EQ(test::copy_of(*after.next()), expected[batch]);
}

TEST(Map, runs_at_each_read_of_what_was_read_once) {
  const auto source = counting_as(Keeps::rows);
  std::atomic<int> calls = 0;
  Pipeline pipeline =
      single(map(source, {.name = "count",
                          .makes = {{"id", DType::i64, {}}},
                          .function = [&](const Sample& in, const MutableSample& out, const SampleRandom& random) {
                            ++calls;
                            out.values<std::int64_t>("id")[0] = in.values<std::int64_t>("id")[0] + random()();
                          }}));
  use_cache(pipeline, std::make_shared<SampleCache>(1 << 20));
  Loader loader(pipeline, by_eights(0));
  const std::vector<Delivered> batches = two_epochs(loader);
  EXPECT_EQ(source->reads, 41) << "one of them to see that nothing is drawn";
  EXPECT_EQ(calls, 80);
}

TEST(Map, draws_numbers_of_its_own) {
  const auto draw = [](const std::string& field) {
    return Mapping{.name = "draw " + field,
                   .makes = {{field, DType::u32, {}}},
                   .function = [field](const Sample&, const MutableSample& out, const SampleRandom& random) {
                     out.values<std::uint32_t>(field)[0] = random()();
                   }};
  };
  const SourcePtr source = map(map(counting_as(Keeps::nothing, 1), draw("first")), draw("second"));
  std::set<std::uint32_t> drawn;
  for (const std::uint64_t epoch : {0, 1}) {
    for (const std::size_t field : {1, 2, 3}) {  // "noise" has three numbers; the others are "first" and "second"
      for (const std::uint32_t number : rows_of<std::uint32_t>(*source, {0}, epoch, field)) drawn.insert(number);
    }
  }
  EXPECT_EQ(drawn.size(), 10U);
}

TEST(Map, mistakes_are_named) {
  const SourcePtr source = numbers({1, 2});
  const MapFunction nothing = [](const Sample&, const MutableSample&, const SampleRandom&) {};
  const auto of_map = [&](Mapping mapping) {
    return refusal_message<ConfigError>([&] { (void)map(source, std::move(mapping)); });
  };
  EXPECT_EQ(of_map({.name = "", .makes = {}, .function = nothing}).what, "map() was given a function without a name");
  EXPECT_EQ(of_map({.name = "a", .makes = {{"y", DType::f32, {}}}, .function = {}}).what,
            "map \"a\" makes fields without a function");
  EXPECT_EQ(of_map({.name = "a", .makes = {{"y", DType::f32, {}}, {"y", DType::u8, {}}}, .function = nothing}).what,
            "map \"a\" makes field \"y\" twice");
  EXPECT_EQ(of_map({.name = "a", .makes = {{"y", DType::f32, {-1}}}, .function = nothing}).what,
            "map \"a\" makes field \"y\" of shape [-1]");
  const Message drops = of_map({.name = "a", .makes = {}, .drops = {"z"}, .function = nothing});
  EXPECT_EQ(drops.what, "the sample has no field \"z\"");
  EXPECT_EQ(drops.where, "its fields are \"x\", \"row\"");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)map(nullptr, {.name = "a", .makes = {}, .function = nothing}); }).what,
            "map() was given no source");
  const SourcePtr wrong = map(
      source, {.name = "a",
               .makes = {{"y", DType::f32, {}}},
               .function = [](const Sample& in, const MutableSample&, const SampleRandom&) { (void)in.values<double>("x"); }});
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)rows_of<float>(*wrong, {0}); }).what, "field \"x\" holds f32, not f64");
}

TEST(Map, rows_that_are_drawn_are_refused_inside_too) {
  class Drawn final : public Source {
   public:
    [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
    [[nodiscard]] std::int64_t size() const override { return 4; }
    [[nodiscard]] std::string fingerprint() const override { return "drawn"; }
    [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
    void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t value = random(i)();
        std::memcpy(rows.row(0, i, 8), &value, 8);
      }
    }

   private:
    Field field_{"id", DType::i64, {}};
  };
  EXPECT_EQ(refusal_message<ConfigError>([] { (void)drawn_ids(std::make_shared<Drawn>()); }).what,
            "the data set draws random numbers in read(): a cache of its rows would repeat the numbers of the first epoch");
}

TEST(Generate, makes_samples_up_from_their_numbers) {
  const SourcePtr squares = generate("squares 1", 5, {{"x", DType::i64, {}}, {"noise", DType::u32, {}}},
                                     [](std::int64_t index, const MutableSample& out, const SampleRandom& random) {
                                       out.values<std::int64_t>("x")[0] = index * index;
                                       out.values<std::uint32_t>("noise")[0] = random()();
                                     });
  EXPECT_EQ(squares->size(), 5);
  EXPECT_EQ(squares->keeps(), Keeps::nothing);
  EXPECT_THAT(rows_of<std::int64_t>(*squares, {4, 0, 3}), ElementsAre(16, 0, 9));
  EXPECT_NE(rows_of<std::uint32_t>(*squares, {1}, 0, 1), rows_of<std::uint32_t>(*squares, {1}, 1, 1));
  EXPECT_EQ(squares->fingerprint(), "map \"squares 1\" to x i64[], noise u32[] of (5 numbers)");
  EXPECT_GT(squares->samples_per_ticket(), 1000);
  EXPECT_EQ(refusal_message<ConfigError>([] {
              (void)generate("a", 5, {{"x", DType::i64, {}}}, nullptr);
            }).what,
            "generate() was given no function");
  EXPECT_EQ(refusal_message<ConfigError>([] { (void)generate("a", -1, {}, [](auto&&...) {}); }).what,
            "generate() was asked for -1 samples");
}

// A function that reads files can name them. Then messages name the file, a cache may keep the rows, and a changed file is
// noticed.
TEST(Generate, says_where_its_samples_come_from_and_what_may_be_kept) {
  const auto write = [](std::int64_t index, const MutableSample& out, const SampleRandom&) {
    out.values<std::int64_t>("x")[0] = 10 * index;
  };
  const std::vector<Field> fields = {{"x", DType::i64, {}}};
  const std::filesystem::path folder = testing::TempDir() + "generated_of_files";
  std::filesystem::create_directories(folder);
  std::vector<std::filesystem::path> files;
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) std::ofstream(files.emplace_back(folder / name)) << name;
  const SourcePtr read = generate("tens 1", 3, fields, write, {.keeps = Keeps::rows, .files = files});
  EXPECT_EQ(read->describe(1), files[1].string());
  EXPECT_EQ(read->stamps(), stamps_of(files));
  EXPECT_TRUE(read->looks_ahead());
  EXPECT_EQ(read->samples_per_ticket(), 1);
  EXPECT_EQ(subset(read, {2})->describe(0), files[2].string());
  EXPECT_EQ(read->fingerprint(), generate("tens 1", 3, fields, write)->fingerprint()) << "files may be moved";

  Pipeline pipeline = single(read);
  const auto cache = std::make_shared<SampleCache>(cache_payload(*read));
  use_cache(pipeline, cache);
  Loader loader(pipeline, by_eights(0));
  (void)two_epochs(loader);
  EXPECT_EQ(cache->counters().hits, 3U) << "the second epoch's";

  const SourcePtr named =
      generate("tens 1", 3, fields, write, {.describe = [](std::int64_t i) { return "night " + std::to_string(i); }});
  EXPECT_EQ(named->describe(2), "night 2");
  EXPECT_EQ(named->keeps(), Keeps::nothing);
  EXPECT_EQ(generate("tens 1", 3, fields, write, {.keeps = Keeps::memory})->keeps(), Keeps::memory);
  const SourcePtr draws = generate(
      "noise 1", 3, {{"x", DType::u32, {}}},
      [](std::int64_t, const MutableSample& out, const SampleRandom& random) { out.values<std::uint32_t>("x")[0] = random()(); },
      {.keeps = Keeps::rows});
  EXPECT_THAT(refusal_message<ConfigError>([&] { (void)map(draws, {.name = "same", .makes = {}, .function = {}}); }).what,
              HasSubstr("draws random numbers in read(): a cache of its rows would repeat the numbers"));
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)generate("a", 5, fields, write, {.keeps = Keeps::parts}); }).what,
            "generate \"a\" says Keeps::parts, but has no parts");
  EXPECT_EQ(refusal_message<ConfigError>([&] {
              (void)generate("a", 5, {{"y", DType::i64, {-1}}}, write);
            }).what,
            "generate \"a\" makes field \"y\" of shape [-1]");
}

TEST(Subset, has_the_samples_of_its_list) {
  const SourcePtr source = subset(numbers({10, 11, 12, 13}), {3, 0, 3});
  EXPECT_EQ(source->size(), 3);
  EXPECT_THAT(rows_of<float>(*source, {0, 1, 2}), ElementsAre(13, 10, 13));
  EXPECT_EQ(source->describe(0), "sample 3 before subset()") << "its own source has no more to say";
  EXPECT_EQ(subset(counting_as(Keeps::rows), {7})->describe(0), "counting.h5 row 7");
  EXPECT_THAT(source->fingerprint(), testing::MatchesRegex("subset of 3 samples sha256 [0-9a-f]{16} of \\(memory .*\\)"));
  EXPECT_NE(source->fingerprint(), subset(numbers({10, 11, 12, 13}), {3, 0, 2})->fingerprint());
  const Message outside = refusal_message<ConfigError>([&] { (void)subset(source, {0, 1, 3}); });
  EXPECT_EQ(outside.what, "there is no sample 3: the source has 3 samples, the first is sample 0");
  EXPECT_EQ(outside.where, "subset(), place 2 of the list");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)subset(source, {}); }).what, "the list of samples is empty");
}

TEST(RandomSubset, shares_are_disjoint_complete_and_stay_when_samples_are_added) {
  const auto rows_in = [](std::int64_t size, const Fraction& fraction) {
    const SourcePtr some = random_subset(counting_as(Keeps::nothing, size), fraction);
    return rows_of<std::int64_t>(*some, test::up_to(some->size()));
  };
  const std::vector<std::int64_t> train = rows_in(2000, {.to = 0.8, .seed = 5});
  const std::vector<std::int64_t> rest = rows_in(2000, {.from = 0.8, .seed = 5});
  std::vector<std::int64_t> all;
  std::merge(train.begin(), train.end(), rest.begin(), rest.end(), std::back_inserter(all));
  EXPECT_EQ(all, test::up_to(2000));
  EXPECT_THAT(rest.size(), testing::AllOf(testing::Gt(330U), testing::Lt(470U)));
  const std::vector<std::int64_t> grown = rows_in(3000, {.to = 0.8, .seed = 5});
  EXPECT_TRUE(std::equal(train.begin(), train.end(), grown.begin()));
  EXPECT_NE(rows_in(2000, {.to = 0.8, .seed = 6}), train);
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)rows_in(9, {.from = 0.5, .to = 0.5}); }).what,
            "a fraction from 0.5 to 0.5 has no samples");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)rows_in(2, {.from = 0.999999, .to = 1}); }).what,
            "no sample of 2 falls into the fraction from 0.999999 to 1");
}

TEST(TakeAndRepeat, number_the_samples_anew) {
  const SourcePtr first = take(numbers({10, 11, 12, 13}), 2);
  EXPECT_THAT(rows_of<float>(*first, {0, 1}), ElementsAre(10, 11));
  EXPECT_EQ(first->describe(1), "") << "the number says it";
  EXPECT_EQ(take(first, 9)->size(), 2);
  const SourcePtr thrice = repeat(first, 3);
  EXPECT_EQ(thrice->size(), 6);
  EXPECT_THAT(rows_of<float>(*thrice, {0, 1, 2, 3, 4, 5}), ElementsAre(10, 11, 10, 11, 10, 11));
  EXPECT_EQ(thrice->describe(3), "sample 1 before repeat()");
  EXPECT_THAT(thrice->fingerprint(), testing::StartsWith("3 times of (first 2 samples of (memory "));
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)take(first, 0); }).what, "take() was asked for 0 samples");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)repeat(first, 0); }).what, "repeat() was asked for 0 passes over 2 samples");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)repeat(first, std::int64_t{1} << 62U); }).where, "repeat()");
}

TEST(Concat, joins_sources_and_says_which_one_a_sample_is_of) {
  const SourcePtr source = concat({numbers({1, 2}), numbers({3}), numbers({4, 5, 6})});
  EXPECT_EQ(source->size(), 6);
  EXPECT_THAT(rows_of<float>(*source, {5, 0, 1, 2, 3}), ElementsAre(6, 1, 2, 3, 4));
  EXPECT_EQ(source->describe(1), "");
  EXPECT_EQ(source->describe(4), "sample 1 of source 3 of concat()");
  EXPECT_EQ(concat({counting_as(Keeps::rows, 3), counting_as(Keeps::rows, 3, "second")})->describe(5), "second.h5 row 2");
  EXPECT_THAT(source->fingerprint(), testing::MatchesRegex("concat of \\(memory .*\\), \\(memory .*\\), \\(memory .*\\)"));
}

TEST(Concat, names_the_field_that_differs) {
  const auto of = [](std::vector<Field> fields) {
    return map(numbers({1}), {.name = "other fields",
                              .makes = std::move(fields),
                              .drops = {"x", "row"},
                              .function = [](const Sample&, const MutableSample&, const SampleRandom&) {}});
  };
  const SourcePtr first = of({{"image", DType::f32, {3, 8, 8}}, {"label", DType::i64, {}}});
  const auto refused = [&](const SourcePtr& second) {
    return refusal_message<ConfigError>([&] { (void)concat({first, first, second}); });
  };
  EXPECT_EQ(refused(of({{"image", DType::u8, {3, 8, 8}}, {"label", DType::i64, {}}})).what,
            "field \"image\" is u8 [3,8,8] in source 3 and f32 [3,8,8] in source 1");
  EXPECT_EQ(refused(of({{"image", DType::f32, {3, 8, 8}}, {"label", DType::i64, {1}}})).what,
            "field \"label\" is i64 [1] in source 3 and i64 [] in source 1");
  EXPECT_EQ(refused(of({{"label", DType::i64, {}}, {"image", DType::f32, {3, 8, 8}}})).what,
            "field 1 is \"label\" in source 3 and \"image\" in source 1");
  EXPECT_EQ(refused(of({{"image", DType::f32, {3, 8, 8}}})).what, "source 3 has no field \"label\", but source 1 has one");
  EXPECT_EQ(refused(of({{"image", DType::f32, {3, 8, 8}}, {"label", DType::i64, {}}, {"y", DType::u8, {}}})).what,
            "source 3 has a field \"y\", but source 1 has none");
  EXPECT_EQ(refusal_message<ConfigError>([] { (void)concat({}); }).what, "concat() was given no source");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)concat({first, nullptr}); }).what, "concat() was given no source");
}

TEST(Composed, what_files_say_of_themselves_is_passed_on) {
  const SourcePtr first = take(repeat(counting_as(Keeps::rows, 3), 2), 4), second = counting_as(Keeps::rows, 3, "second");
  EXPECT_EQ(map(first, {.name = "none", .makes = {}, .drops = {"noise"}, .function = {}})->read_as(), "counting in Hz");
  EXPECT_EQ(concat({first, second, first})->read_as(), "counting in Hz; second in Hz") << "each text once";
  EXPECT_EQ(concat({numbers({1}), numbers({2})})->read_as(), "");
}

TEST(Composed, the_cache_holds_what_is_used_and_each_part_once) {
  constexpr std::uint64_t kEach = 16 + 2 * sizeof(void*);
  const std::uint64_t row = 16 + 16 + kEach;  // two fields, each of which begins at a multiple of 16 bytes
  const SourcePtr rows = counting_as(Keeps::rows, 1000);
  EXPECT_EQ(cache_payload(*take(rows, 10)), 10 * row);
  EXPECT_EQ(cache_payload(*subset(rows, {5, 6, 5})), 2 * row);
  EXPECT_EQ(cache_payload(*repeat(rows, 7)), 1000 * row);
  EXPECT_EQ(cache_payload(*drawn_ids(repeat(take(rows, 10), 7))), 10 * row);
  EXPECT_EQ(cache_payload(*take(counting_as(Keeps::parts, 1000), 10)), 10 * (8 + kEach));
  EXPECT_EQ(cache_payload(*concat({take(rows, 10), counting_as(Keeps::nothing), counting_as(Keeps::parts, 3)})),
            10 * row + 3 * (8 + kEach) + 1 + kEach);
}

TEST(Composed, what_will_be_read_is_announced_by_the_numbers_inside) {
  const auto source = counting_as(Keeps::parts, 300);
  source->is_advised = true;
  const auto other = counting_as(Keeps::nothing, 2);
  const SourcePtr composed = drawn_ids(concat({other, repeat(subset(source, {299, 7, 150}), 2)}));
  EXPECT_TRUE(composed->looks_ahead());
  const std::vector<std::int64_t> positions(4, 0);
  composed->will_need(std::vector<std::int64_t>{0, 2, 6, 4}, ReadRandom(0, 0, positions));
  EXPECT_THAT(source->advised, ElementsAre(299, 7, 150));
  EXPECT_THAT(other->advised, ElementsAre(0));
}

TEST(Composed, a_sample_that_fails_is_named_by_its_own_source) {
  const auto source = counting_as(Keeps::rows, 40);
  source->before = [](std::int64_t index) {
    if (index == 7) throw DataError({.what = "the row can't be read", .where = "", .next = ""});
  };
  Loader loader(single(drawn_ids(subset(source, {1, 2, 7, 3}))), by_eights(0));
  try {
    (void)loader.next();
    FAIL() << "nothing was refused";
  } catch (const DataError& error) {
    EXPECT_THAT(std::string(error.what()), HasSubstr("sample 2 (counting.h5 row 7)"));
  }
}

}  // namespace
}  // namespace millrace::data
