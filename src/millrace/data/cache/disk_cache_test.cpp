#include "millrace/data/cache/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "millrace/data/cache/detail/part_file.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/nifti_source.h"
#include "tests/support/fault_fs.h"
#include "tests/support/nifti_maker.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using test::CountingSource;
using test::Delivered;
using test::epoch_of;
using test::rows_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A disk whose size does not depend on this machine's disk.
class Disk : public FaultFs {
 public:
  using FaultFs::FaultFs;
  std::uint64_t free = std::uint64_t{100} << 30;
  [[nodiscard]] std::uint64_t free_bytes(const stdfs::path& path) override {
    (void)FaultFs::exists(path);
    return free;
  }
};

// A source whose parts have 40,000 numbers each, of which a sample reads a few.
class WideSource final : public Source {
 public:
  explicit WideSource(std::string print = "wide", std::int64_t size = 6) : print_(std::move(print)), size_(size) {}
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::string fingerprint() const override { return print_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    std::vector<std::byte> part(part_bytes(0));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      load(indices[i], part);
      const std::span<const std::byte> whole(part);
      std::byte* row = rows.row(0, i, 24);
      finish(indices[i], {&whole, 1}, {{&row, 1}}, random.part(i, 1));
    }
  }
  [[nodiscard]] Keeps keeps() const override { return Keeps::parts; }
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return 8 * kNumbers; }
  void load(std::int64_t part, std::span<std::byte> bytes) const override {
    ++loads;
    for (std::int64_t i = 0; i < kNumbers; ++i) {
      const std::int64_t value = part * kNumbers + i;
      std::memcpy(bytes.data() + 8 * i, &value, 8);
    }
  }
  [[nodiscard]] std::vector<PartRange> looks_at(std::int64_t, std::size_t, const ReadRandom& random) const override {
    if (!is_choosy) return {};
    std::vector<PartRange> ranges;
    for (const std::size_t place : places(random)) ranges.push_back({8 * place, 8});
    return ranges;
  }
  void finish(std::int64_t, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override {
    std::size_t i = 0;
    for (const std::size_t place : places(random)) std::memcpy(rows.row(0, 0, 24) + 8 * i++, parts[0].data() + 8 * place, 8);
  }
  bool is_choosy = true;
  mutable std::atomic<int> loads{0};

 private:
  static constexpr std::int64_t kNumbers = 40'000;
  static std::array<std::size_t, 3> places(const ReadRandom& random) {
    Philox draws = random(0);
    std::array<std::size_t, 3> places{};
    std::size_t first = 0;
    for (std::size_t& place : places) {
      place = first + draws.below(kNumbers / 3);
      first += kNumbers / 3;
    }
    return places;
  }
  Field field_{"x", DType::i64, {3}};
  std::string print_;
  std::int64_t size_;
};

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest()
      : folder_(stdfs::path(testing::TempDir()) / ("disk_cache-" + std::to_string(::getpid()) + "-" +
                                                   testing::UnitTest::GetInstance()->current_test_info()->name())) {
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
  }
  ~DiskCacheTest() override {
    std::error_code ignored;
    stdfs::permissions(folder_ / "parts", stdfs::perms::owner_all, ignored);
    stdfs::remove_all(folder_, ignored);
  }

  std::shared_ptr<DiskCache> cache(std::uint64_t budget = 0, Fs* fs = nullptr) {
    return std::make_shared<DiskCache>(DiskCache::Options{.folder = folder_ / "parts",
                                                          .budget_bytes = budget,
                                                          .note = [this](const std::string& text) { told_.push_back(text); },
                                                          .fs = fs != nullptr ? fs : &disk_});
  }
  [[nodiscard]] std::vector<stdfs::path> files() const {
    std::vector<stdfs::path> files;
    if (!stdfs::exists(folder_ / "parts")) return files;
    for (const auto& entry : stdfs::directory_iterator(folder_ / "parts")) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const stdfs::path& file : files()) sum += stdfs::file_size(file);
    return sum;
  }
  static std::unique_ptr<Loader> loader_of(std::shared_ptr<const Source> source, const std::shared_ptr<DiskCache>& cache,
                                           int readers) {
    LoaderOptions options;
    options.batch_size = 8;
    options.shuffle = true;
    options.seed = 42;
    options.readers = readers;
    Pipeline pipeline = single(std::move(source));
    use_cache(pipeline, cache);
    return std::make_unique<Loader>(std::move(pipeline), options);
  }
  static std::vector<std::vector<Delivered>> epochs_of(Loader& loader, int count) {
    std::vector<std::vector<Delivered>> epochs;
    for (int epoch = 0; epoch < count; ++epoch) epochs.push_back(epoch_of(loader));
    return epochs;
  }
  static std::string text_of(const stdfs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const stdfs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  }

  stdfs::path folder_;
  Disk disk_{Fs::real()};
  std::vector<std::string> told_;
};

TEST_F(DiskCacheTest, StreamsAreEqualWithAndWithoutForAnyReadersAndBudget) {
  for (const Keeps keeps : {Keeps::rows, Keeps::parts}) {
    const auto source = [&] {
      auto made = std::make_shared<CountingSource>(103);
      made->kept = keeps;
      return made;
    };
    const auto expected = epochs_of(*loader_of(source(), nullptr, 0), 3);
    const std::uint64_t all = 103 * detail::part_file_bytes(keeps == Keeps::rows ? 32 : 8);
    for (const std::uint64_t budget : {all, all / 2, std::uint64_t{1}}) {
      for (const int readers : {0, 1, 2, 8}) {
        stdfs::remove_all(folder_ / "parts");
        const auto first = cache(budget);
        ASSERT_EQ(epochs_of(*loader_of(source(), first, readers), 3), expected) << budget << " bytes, " << readers << " readers";
        EXPECT_LE(bytes(), budget);
        EXPECT_EQ(first->counters().bytes, bytes());
        const auto second = cache(budget);
        ASSERT_EQ(epochs_of(*loader_of(source(), second, readers), 3), expected) << "another run";
        EXPECT_EQ(second->counters().misses == 0, budget == all);
      }
    }
  }
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(DiskCacheTest, ALaterRunDecodesNothing) {
  const auto source = std::make_shared<WideSource>();
  (void)epochs_of(*loader_of(source, cache(), 0), 2);
  EXPECT_EQ(source->loads, 6);
  EXPECT_EQ(files().size(), 6U);
  const auto later = std::make_shared<WideSource>();
  const auto again = cache();
  (void)epochs_of(*loader_of(later, again, 2), 2);
  EXPECT_EQ(later->loads, 0);
  EXPECT_GE(again->counters().hits, 12U);
  EXPECT_EQ(again->counters().misses, 0U);
  const auto other = std::make_shared<WideSource>("other");
  (void)epochs_of(*loader_of(other, cache(), 0), 1);
  EXPECT_EQ(other->loads, 6) << "of another fingerprint";
}

TEST_F(DiskCacheTest, AResumedLoaderGoesOnAtTheSamePlace) {
  const auto expected = epochs_of(*loader_of(std::make_shared<WideSource>("wide", 40), nullptr, 0), 2);
  const auto shared = cache();
  Json state;
  {
    const auto loader = loader_of(std::make_shared<WideSource>("wide", 40), shared, 2);
    (void)loader->next();
    (void)loader->next();
    state = loader->state();
  }
  const auto loader = loader_of(std::make_shared<WideSource>("wide", 40), cache(), 1);
  loader->load_state(state);
  const auto rest = epoch_of(*loader);
  ASSERT_EQ(rest.size(), expected[0].size() - 2);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected[0].begin() + 2));
  EXPECT_EQ(epoch_of(*loader), expected[1]);
}

TEST_F(DiskCacheTest, WhatASampleLooksAtIsAllThatIsRead) {
  const auto choosy = std::make_shared<WideSource>();
  const auto whole = std::make_shared<WideSource>();
  whole->is_choosy = false;
  const auto shared = cache();
  const DiskCachedSource first(choosy, shared);
  const DiskCachedSource second(whole, shared);
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    const auto expected = rows_of<std::int64_t>(*choosy, {3, 1, 5, 1}, epoch);
    EXPECT_EQ(rows_of<std::int64_t>(first, {3, 1, 5, 1}, epoch), expected);
    EXPECT_EQ(rows_of<std::int64_t>(second, {3, 1, 5, 1}, epoch), expected);
  }
  // Damage outside the ranges that a sample reads is not noticed by that sample; reading the whole part finds it.
  for (const stdfs::path& path : files()) {
    std::string text = text_of(path);
    text.back() = static_cast<char>(text.back() ^ 1);
    write(path, text);
  }
  const int before = whole->loads;
  (void)rows_of<std::int64_t>(second, {1}, 9);
  EXPECT_EQ(whole->loads, before + 1);
}

TEST_F(DiskCacheTest, NoByteInAFileMakesWrongData) {
  const auto source = std::make_shared<WideSource>();
  source->is_choosy = false;
  const auto expected = rows_of<std::int64_t>(*source, {2});
  const auto reads = [&] { return rows_of<std::int64_t>(DiskCachedSource(source, cache()), {2}); };
  ASSERT_EQ(reads(), expected);
  ASSERT_EQ(files().size(), 1U);
  const stdfs::path path = files()[0];
  const std::string good = text_of(path);
  std::vector<std::string> bad = {"",
                                  "x",
                                  good.substr(0, 30),
                                  good.substr(0, good.size() - 1),
                                  good + "x",
                                  std::string(good.size(), '\0'),
                                  std::string(good.size(), '\xFF')};
  for (std::size_t at = 0; at < good.size(); at += at < 200 ? 1 : 9973) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x10);
  }
  for (const std::string& text : bad) {
    write(path, text);
    told_.clear();
    ASSERT_EQ(reads(), expected);
    ASSERT_EQ(told_.size(), text == good ? 0U : 1U) << text.size();
    EXPECT_EQ(text_of(path), good) << "written anew";
  }
  EXPECT_THAT(told_[0], HasSubstr("was changed after it was written"));
  EXPECT_THAT(told_[0], HasSubstr(path.string()));
}

TEST_F(DiskCacheTest, ThingsPlantedInTheFolderDoNoHarm) {
  const auto source = std::make_shared<WideSource>();
  const auto expected = rows_of<std::int64_t>(*source, {0, 1, 2, 3, 4, 5});
  const auto reads = [&] { return rows_of<std::int64_t>(DiskCachedSource(source, cache()), {0, 1, 2, 3, 4, 5}); };
  ASSERT_EQ(reads(), expected);
  const std::vector<stdfs::path> before = files();
  stdfs::rename(before[0], folder_ / "elsewhere");
  stdfs::create_symlink(folder_ / "elsewhere", before[0]);
  stdfs::remove(before[1]);
  stdfs::create_directories(before[1] / "inside");
  stdfs::remove(before[2]);
  ASSERT_EQ(::mkfifo(before[2].c_str(), 0600), 0);
  stdfs::copy_file(before[3], before[4], stdfs::copy_options::overwrite_existing);  // replaces a file by the file of another part
  write(folder_ / "parts" / "notes.txt", "mine");
  write(folder_ / "parts" / (std::string(40, 'z') + ".part"), "mine");
  ASSERT_EQ(reads(), expected);
  ASSERT_EQ(reads(), expected);
  EXPECT_TRUE(stdfs::exists(before[1] / "inside")) << "not ours to remove";
  EXPECT_EQ(text_of(folder_ / "parts" / "notes.txt"), "mine");
}

TEST_F(DiskCacheTest, FilesOfOtherDataLeaveInTheOrderTheyCame) {
  const std::uint64_t one = detail::part_file_bytes(320'000);
  std::vector<stdfs::path> old;
  for (const char* print : {"a", "b"}) {
    (void)rows_of<std::int64_t>(DiskCachedSource(std::make_shared<WideSource>(print), cache()), {0, 1, 2, 3, 4, 5});
    for (const stdfs::path& file : files()) {
      if (std::find(old.begin(), old.end(), file) != old.end()) continue;
      stdfs::last_write_time(file, stdfs::file_time_type::clock::now() - std::chrono::hours(*print == 'a' ? 48 : 24));
      old.push_back(file);
    }
  }
  write(folder_ / "parts" / "notes.txt", "mine");
  const auto source = std::make_shared<WideSource>("c");
  const std::vector<Dataset> datasets = {{.name = "", .source = source}};
  const Chosen<std::shared_ptr<DiskCache>> choice =
      choose_disk_cache(datasets, {.folder = folder_ / "parts", .budget_bytes = 13 * one, .fs = &disk_});
  ASSERT_NE(choice.value, nullptr);
  EXPECT_EQ(choice.reason, "disk: 1.9 MB to keep, 0 B of it already there, data.cache_bytes is 4.2 MB");
  const std::vector<stdfs::path> left = files();
  for (std::size_t i = 0; i < old.size(); ++i)
    EXPECT_EQ(std::find(left.begin(), left.end(), old[i]) != left.end(), i >= 6) << "the first data's leave";
  EXPECT_EQ(text_of(folder_ / "parts" / "notes.txt"), "mine");
  (void)rows_of<std::int64_t>(DiskCachedSource(source, choice.value), {0, 1, 2, 3, 4, 5});
  EXPECT_LE(bytes(), 13 * one);
  const Chosen<std::shared_ptr<DiskCache>> again =
      choose_disk_cache(datasets, {.folder = folder_ / "parts", .budget_bytes = 4 * one, .fs = &disk_});
  EXPECT_EQ(again.reason, "disk, in part: 1.9 MB to keep, 1.9 MB of it already there, data.cache_bytes is 1.3 MB")
      << "its own stay";
}

TEST_F(DiskCacheTest, WhatAKilledRunWasWritingGoesAfterADay) {
  stdfs::create_directories(folder_ / "parts");
  const std::string name = std::string(40, 'a') + ".part.tmp.";
  for (const int hours : {1, 25}) {
    write(folder_ / "parts" / (name + std::to_string(hours)), "half");
    stdfs::last_write_time(folder_ / "parts" / (name + std::to_string(hours)),
                           stdfs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  const std::vector<Dataset> datasets = {{.name = "", .source = std::make_shared<WideSource>()}};
  (void)choose_disk_cache(datasets, {.folder = folder_ / "parts", .writes = false, .fs = &disk_});
  EXPECT_EQ(files().size(), 2U);
  (void)choose_disk_cache(datasets, {.folder = folder_ / "parts", .fs = &disk_});
  EXPECT_THAT(files(), ElementsAre(folder_ / "parts" / (name + "1")));
}

TEST_F(DiskCacheTest, ChoosesByWhatThereIsToKeep) {
  const auto reason = [&](std::shared_ptr<const Source> source, stdfs::path folder) {
    const std::vector<Dataset> datasets = {{.name = "", .source = std::move(source)}};
    return choose_disk_cache(datasets, {.folder = std::move(folder), .fs = &disk_}).reason;
  };
  EXPECT_EQ(reason(std::make_shared<CountingSource>(9), folder_ / "parts"),
            "off: samples are made anew at each read, as their source says");
  const auto small = std::make_shared<CountingSource>(9);
  small->kept = Keeps::parts;
  EXPECT_EQ(reason(small, folder_ / "parts"), "off: parts of 8 B are so small that reading the source is as fast");
  EXPECT_EQ(reason(std::make_shared<WideSource>(), ""), "off: there is no folder for the cache");
  EXPECT_EQ(reason(std::make_shared<WideSource>(), folder_ / "parts"),
            "disk: 1.9 MB to keep, 0 B of it already there, half of the free disk is 54 GB");
  EXPECT_FALSE(stdfs::exists(folder_ / "parts")) << "nothing is written before there is something to keep";
}

TEST_F(DiskCacheTest, ADiskThatFailsAtAnyCallCostsTheCacheAndNotTheRun) {
  const auto source = std::make_shared<WideSource>();
  const auto expected = rows_of<std::int64_t>(*source, {0, 1, 2, 3, 4, 5});
  for (const int number : {ENOSPC, EACCES, EIO}) {
    for (std::int64_t call = 0; call < 12; ++call) {
      stdfs::remove_all(folder_ / "parts");
      told_.clear();
      Disk disk(Fs::real(), {.fail_at = call, .error_number = number, .keeps_failing = true, .tears_write = true});
      {
        const DiskCachedSource cached(source, cache(0, &disk));
        ASSERT_EQ(rows_of<std::int64_t>(cached, {0, 1, 2, 3, 4, 5}), expected) << "call " << call;
        ASSERT_EQ(rows_of<std::int64_t>(cached, {0, 1, 2, 3, 4, 5}), expected) << "call " << call;
      }
      EXPECT_EQ(told_.size(), 1U) << "call " << call;
      EXPECT_EQ(rows_of<std::int64_t>(DiskCachedSource(source, cache()), {0, 1, 2, 3, 4, 5}), expected);
    }
  }
}

TEST_F(DiskCacheTest, TheLastGigabyteOfADiskIsLeftAlone) {
  disk_.free = (std::uint64_t{1} << 30) + 100'000;
  const auto source = std::make_shared<WideSource>();
  const DiskCachedSource cached(source, cache());
  (void)rows_of<std::int64_t>(cached, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_THAT(told_, ElementsAre(HasSubstr("less than 1.1 GB of the disk is free")));
}

TEST_F(DiskCacheTest, WhoOnlyLooksWritesNothing) {
  const auto source = std::make_shared<WideSource>();
  const auto look = [&] {
    return std::make_shared<DiskCache>(DiskCache::Options{.folder = folder_ / "parts", .writes = false, .fs = &disk_});
  };
  (void)rows_of<std::int64_t>(DiskCachedSource(source, look()), {0, 1});
  EXPECT_THAT(files(), IsEmpty());
  (void)rows_of<std::int64_t>(DiskCachedSource(source, cache()), {0, 1});
  const auto reader = look();
  (void)rows_of<std::int64_t>(DiskCachedSource(source, reader), {0, 1, 2});
  EXPECT_EQ(reader->counters().hits, 2U);
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(DiskCacheTest, RunsAtOnceShareAFolder) {
  const auto expected = epochs_of(*loader_of(std::make_shared<WideSource>("wide", 40), nullptr, 0), 3);
  std::vector<std::vector<std::vector<Delivered>>> got(3);
  std::vector<std::shared_ptr<DiskCache>> caches = {cache(), cache(), cache()};
  std::vector<std::thread> runs;
  for (std::size_t run = 0; run < got.size(); ++run) {
    runs.emplace_back(
        [&, run] { got[run] = epochs_of(*loader_of(std::make_shared<WideSource>("wide", 40), caches[run], 2), 3); });
  }
  for (std::thread& run : runs) run.join();
  for (const auto& epochs : got) EXPECT_EQ(epochs, expected);
  EXPECT_EQ(files().size(), 40U);
  EXPECT_THAT(told_, IsEmpty());
}

// A changed file is recognised by its content or by the time when it was written, even if its size is the same.
TEST_F(DiskCacheTest, AFileThatChangedIsDecodedAnew) {
  const stdfs::path path = folder_ / "v.nii";
  test::NiftiMaker maker{.dim = {128, 128, 96}};
  std::vector<std::int16_t> values(std::size_t{128} * 128 * 96);
  const auto first_of = [&](const stdfs::path& file) {
    const auto source = std::make_shared<NiftiSource>(std::vector{file}, NiftiSamples{.patch = {1, 1, 1}, .random = false});
    const auto shared = cache();
    const std::int16_t value = rows_of<std::int16_t>(DiskCachedSource(source, shared), {0})[0];
    EXPECT_EQ(shared->counters().bytes, bytes());
    return std::pair(value, shared->counters().hits);
  };
  for (std::int16_t value = 1; value < 4; ++value) {
    const auto written = stdfs::exists(path) ? stdfs::last_write_time(path) : stdfs::file_time_type::clock::now();
    values[(48 * 128 + 64) * 128 + 64] = values[(47 * 128 + 63) * 128 + 63] = value;  // in the middle, which no stamp covers
    write(path, maker.file(values));
    stdfs::last_write_time(path, written + std::chrono::milliseconds(3));
    EXPECT_EQ(first_of(path), std::pair(value, std::uint64_t{0}));
    EXPECT_EQ(first_of(path), std::pair(value, std::uint64_t{1}));
  }
  stdfs::create_directories(folder_ / "elsewhere");
  stdfs::rename(path, folder_ / "elsewhere" / "w.nii");
  EXPECT_EQ(first_of(folder_ / "elsewhere" / "w.nii"), std::pair(std::int16_t{3}, std::uint64_t{1})) << "moved is the same";
}

}  // namespace
}  // namespace millrace::data
