#include "millrace/data/files/file_stamps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/data/loader/detail/data_identity.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FileStamps : public testing::Test {
 protected:
  FileStamps() : folder_(stdfs::temp_directory_path() / ("mr_stamps_" + std::to_string(::getpid()))) {
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
  }
  ~FileStamps() override { stdfs::remove_all(folder_); }

  stdfs::path make(const std::string& name, std::size_t size, char fill = 'a') {
    stdfs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << std::string(size, fill);
    return folder_ / name;
  }
  static void change(const stdfs::path& path, std::uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('!');
  }

  stdfs::path folder_;
};

TEST_F(FileStamps, names_are_relative_to_the_folder_that_all_are_in) {
  const std::vector<stdfs::path> spread = {"/d/x/cat/1.jpg", "/d/x/dog/../dog/1.jpg", "/d/x/2.jpg"};
  EXPECT_THAT(relative_names(spread), ElementsAre("cat/1.jpg", "dog/1.jpg", "2.jpg"));
  const std::vector<stdfs::path> alike = {"/d/cat/1.jpg", "/d/cats/1.jpg"};
  EXPECT_THAT(relative_names(alike), ElementsAre("cat/1.jpg", "cats/1.jpg"));
  EXPECT_THAT(relative_names(std::vector<stdfs::path>{"/d/x/only.json"}), ElementsAre("only.json"));
  EXPECT_EQ(relative_names(std::vector<stdfs::path>{"small.json", "b/c"}),
            relative_names(std::vector<stdfs::path>{"./small.json", "./b//c"}));
  EXPECT_THAT(relative_names({}), IsEmpty());
}

// A launcher ends a rank that does not move, and the files of a large data set take minutes.
TEST_F(FileStamps, each_file_is_a_sign_of_life) {
  const std::vector<stdfs::path> files = {make("a", 10), make("b", 10), make("c", 10)};
  const std::uint64_t beat = doing_beat();
  (void)stamps_of(files);
  EXPECT_EQ(doing_beat(), beat + 3);
}

TEST_F(FileStamps, a_copy_elsewhere_at_another_time_has_the_same_stamps) {
  const std::vector<stdfs::path> files = {make("a/one.h5", 3'000'000), make("a/two.h5", 10)};
  stdfs::create_directories(folder_ / "b");
  std::vector<stdfs::path> copies;
  for (const stdfs::path& file : files) {
    copies.push_back(folder_ / "b" / file.filename());
    stdfs::copy_file(file, copies.back());
    stdfs::last_write_time(copies.back(), stdfs::file_time_type::clock::now() - std::chrono::hours(1000));
  }
  EXPECT_EQ(stamps_of(files), stamps_of(copies));
}

TEST_F(FileStamps, one_byte_is_seen_at_head_and_tail_at_the_samples_and_anywhere_in_a_small_file) {
  constexpr std::size_t kLarge = 5'000'000;
  const auto digest = [](const stdfs::path& path) { return stamps_of(std::vector<stdfs::path>{path})[0].digest; };
  const stdfs::path large = make("large", kLarge);
  const std::string before = digest(large);
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{65'535}, std::uint64_t{kLarge - 1}, std::uint64_t{kLarge - 65'536},
        (kLarge - 8192) / 17 * std::uint64_t{1}, (kLarge - 8192) / 17 * std::uint64_t{16} + 8191}) {
    make("large", kLarge);
    change(large, offset);
    EXPECT_NE(digest(large), before) << "byte " << offset;
  }
  make("large", kLarge);
  change(large, 100'000);
  EXPECT_EQ(digest(large), before) << "between them it is not seen: the header says so";
  const stdfs::path small = make("small", 1 << 20);
  const std::string whole = digest(small);
  change(small, 700'001);
  EXPECT_NE(digest(small), whole);
}

TEST_F(FileStamps, many_files_are_read_in_small_and_by_several_threads) {
  std::vector<stdfs::path> files;
  for (int i = 0; i < 400; ++i) files.push_back(make("f" + std::to_string(i), 100'000 + static_cast<std::size_t>(i)));
  const std::vector<FileStamp> before = stamps_of(files);
  EXPECT_EQ(before, stamps_of(files));
  change(files[399], 100'398);
  const std::vector<FileStamp> after = stamps_of(files);
  for (std::size_t i = 0; i < 399; ++i) EXPECT_EQ(after[i], before[i]);
  EXPECT_NE(after[399], before[399]);
  EXPECT_NE(before[0].digest.substr(0, 2), stamps_of(std::span(files).first(1))[0].digest.substr(0, 2));
}

TEST_F(FileStamps, a_file_that_can_not_be_read_has_no_digest) {
  EXPECT_EQ(stamps_of(std::vector<stdfs::path>{folder_ / "none"}), (std::vector<FileStamp>{{"none", 0, ""}}));
}

// ---- the identity of data in a snapshot

std::vector<detail::DatasetIdentity> of_files(std::vector<FileStamp> files, const std::string& name = "") {
  return {{name, "print", std::move(files)}};
}

std::vector<std::string> differences(const std::vector<detail::DatasetIdentity>& was,
                                     const std::vector<detail::DatasetIdentity>& is) {
  return changes_since(Json::parse(to_json(was).dump()), is).differ;
}

TEST(DataIdentity, names_each_file_that_differs_and_how) {
  const auto was = of_files({{"a.h5", 2048, "a:1"}, {"b.h5", 10, "a:2"}, {"c.h5", 10, "a:3"}, {"d.h5", 10, "a:4"}});
  EXPECT_THAT(differences(was, was), IsEmpty());
  EXPECT_THAT(differences(was, of_files({{"a.h5", 1024, "a:9"}, {"b.h5", 10, "a:7"}, {"d.h5", 10, "a:4"}, {"e.h5", 10, "a:5"}})),
              ElementsAre("file a.h5: 1,024 bytes, was 2,048", "file b.h5: its content differs though its size is the same",
                          "file c.h5 is missing", "file e.h5 is new"));
  EXPECT_THAT(differences(of_files({{"a", 1, "a:1"}, {"b", 1, "a:2"}}), of_files({{"b", 1, "a:2"}, {"a", 1, "a:1"}})),
              ElementsAre("its files are in another order"));
  EXPECT_THAT(differences(of_files({{"a", 1, "a:1"}}, "x"), of_files({{"a", 2, "a:2"}}, "x")),
              ElementsAre("data set \"x\": file a: 2 bytes, was 1"));
  EXPECT_THAT(differences(of_files({}, "x"), of_files({}, "y")), ElementsAre("data set \"y\" takes the place of \"x\""));
  EXPECT_THAT(differences(of_files({}), {{"", "other", {}}}), ElementsAre("its fingerprint is \"other\", was \"print\""));
  EXPECT_THAT(differences(of_files({}), {}), ElementsAre("0 data sets, were 1"));
}

TEST(DataIdentity, other_names_with_the_same_content_and_files_that_can_not_be_compared_are_the_same) {
  const auto was = of_files({{"a.h5", 2048, "a:1"}, {"b.h5", 10, ""}, {"c.h5", 10, "a:3"}});
  const auto changes =
      changes_since(to_json(was), of_files({{"A.h5", 2048, "a:1"}, {"b.h5", 11, "a:2"}, {"c.h5", 10, "sha256:3"}}));
  EXPECT_THAT(changes.differ, IsEmpty());
  EXPECT_THAT(changes.renamed, ElementsAre("file a.h5 is now called A.h5"));
}

TEST(DataIdentity, of_very_many_files_groups_are_kept_and_named) {
  std::vector<FileStamp> files;
  for (int i = 0; i < 100'000; ++i) files.push_back({"file" + std::to_string(i) + ".h5", 1000, "c:" + std::to_string(i)});
  const auto was = of_files(files);
  EXPECT_LT(to_json(was).dump().size(), 100'000U);
  EXPECT_THAT(differences(was, was), IsEmpty());
  files[98].digest = "c:other";
  EXPECT_THAT(differences(was, of_files(files)),
              ElementsAre("one or more of the 98 files from file98.h5 to file195.h5: size or content differs"));
  files.pop_back();
  EXPECT_THAT(differences(was, of_files(files)), ElementsAre("99,999 files, were 100,000"));
  files.resize(10);
  EXPECT_THAT(differences(was, of_files(files)), ElementsAre("10 files, were more than 4,096"));
}

TEST(DataIdentity, damaged_json_is_refused) {
  const auto now = of_files({{"a", 1, "a:1"}});
  const Json good = to_json(now);
  const auto refused = [&](const Json& json) { EXPECT_THROW((void)changes_since(json, now), SnapshotError) << json; };
  refused(Json::object());
  refused(Json::array({1}));
  for (const char* key : {"name", "fingerprint", "files"}) {
    Json without = good;
    without[0].erase(key);
    refused(without);
    without[0][key] = 7;
    refused(without);
  }
  for (const Json& row : {Json(1), Json::array({"a", 1}), Json::array({"a", -1, "a:1"}), Json::array({1, 1, "a:1"})}) {
    Json bad = good;
    bad[0]["files"][0] = row;
    refused(bad);
  }
  Json grouped = good;
  grouped[0]["groups"] = Json::array({Json::array({"a", "b", "c", "d"})});
  (void)changes_since(grouped, now);  // fewer files than before: that is the only difference
}

TEST(DataIdentity, long_lists_are_cut) {
  EXPECT_EQ(detail::joined({"1", "2"}), "1; 2");
  EXPECT_EQ(detail::joined({"1", "2", "3", "4", "5", "6", "7"}), "1; 2; 3; 4; 5; and 2 more");
}

// ---- the loader

class StampedSource final : public Source {
 public:
  StampedSource(std::int64_t size, std::vector<FileStamp> files) : inner_(size), files_(std::move(files)) {}
  [[nodiscard]] std::span<const Field> fields() const override { return inner_.fields(); }
  [[nodiscard]] std::int64_t size() const override { return inner_.size(); }
  [[nodiscard]] std::string fingerprint() const override { return "stamped"; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return files_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    inner_.read(indices, rows, random);
  }

 private:
  test::CountingSource inner_;
  std::vector<FileStamp> files_;
};

struct Told {
  std::vector<std::string> warnings, notes;
  [[nodiscard]] LoaderOptions options(bool accepts = false) {
    LoaderOptions options;
    options.batch_size = 4;
    options.readers = 0;
    options.accepts_changed = accepts;
    options.warn = [this](const std::string& line) { warnings.push_back(line); };
    options.note = [this](const std::string& line) { notes.push_back(line); };
    return options;
  }
};

Pipeline stamped(std::int64_t size, const std::string& digest) {
  return single(std::make_shared<StampedSource>(size, std::vector<FileStamp>{{"x.h5", 100, digest}}));
}

TEST(ChangedData, is_refused_by_name_and_accepted_on_demand) {
  Told told;
  Loader before(stamped(40, "a:1"), told.options());
  for (int i = 0; i < 9; ++i) (void)before.next();
  const Json state = before.state();
  const Json data = before.data_state();
  {
    Loader same(stamped(40, "a:1"), told.options());
    same.check_data(data);
    same.load_state(state);
    EXPECT_EQ(same.next()->index, 9U);
  }
  Loader other(stamped(20, "a:2"), told.options());
  try {
    other.check_data(data, "the validation data");
    FAIL() << "not refused";
  } catch (const SnapshotError& error) {
    EXPECT_EQ(error.message().what,
              "the validation data has changed since the run began: file x.h5: its content differs though its size is the same");
    EXPECT_EQ(error.message().where, "data of the snapshot");
    EXPECT_THAT(error.message().next, HasSubstr("data.accept_changed=true"));
  }
  EXPECT_THAT(told.warnings, IsEmpty());
  EXPECT_THAT(told.notes, IsEmpty());
  Loader accepting(stamped(20, "a:2"), told.options(true));
  accepting.check_data(data);
  accepting.load_state(state);
  EXPECT_THAT(told.warnings, ElementsAre("the data has changed since the run began: file x.h5: its content differs though its "
                                         "size is the same"));
  ASSERT_EQ(told.notes.size(), 1U);
  EXPECT_THAT(told.notes[0], HasSubstr("data.accept_changed: the run resumes although the data has changed"));
  EXPECT_FALSE(accepting.next()) << "batch 9 of an epoch of 5: the epoch ends";
  EXPECT_EQ(accepting.next()->epoch, 1U);
  accepting.load_state(accepting.state());
}

TEST(ChangedData, a_snapshot_that_says_nothing_of_its_data_goes_on_with_a_note) {
  Told told;
  Loader before(single(std::make_shared<test::CountingSource>(40)), told.options());
  (void)before.next();
  Json state = before.state();
  state["fingerprint"] = "hdf5 of paths and times";
  Loader after(single(std::make_shared<test::CountingSource>(40)), told.options());
  EXPECT_THROW(after.load_state(state), SnapshotError);
  after.check_data(nullptr);
  after.load_state(state);
  EXPECT_EQ(after.next()->index, 1U);
  ASSERT_EQ(told.notes.size(), 1U);
  EXPECT_THAT(told.notes[0], HasSubstr("could not be compared"));
}

}  // namespace
}  // namespace millrace::data
