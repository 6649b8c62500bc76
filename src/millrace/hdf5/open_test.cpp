// Tests opening many files at once, and the answers about them that are kept between starts.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "millrace/hdf5/detail/index.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Files = std::vector<std::shared_ptr<const File>>;

class OpenAll : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("open_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
    fs::create_directories(root_ / "data");
  }
  void TearDown() override { fs::remove_all(root_); }

  // Writes a file, an hour old, of two data sets whose numbers depend on `number`.
  fs::path make(int number, std::int64_t rows = 6) {
    std::vector<float> values(static_cast<std::size_t>(rows) * 4);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(number * 1000) + static_cast<float>(i);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    const Array x{
        .name = "/x", .dtype = DType::f32, .shape = {rows, 4}, .bytes = bytes, .chunk = {4, 4}, .deflate = 1, .shuffle = true};
    const Array y{.name = "/g/y", .dtype = DType::f32, .shape = {rows, 4}, .bytes = bytes};
    const fs::path path = root_ / "data" / (std::to_string(number) + ".h5");
    write_file(path, std::vector<Array>{x, y});
    age(path, 3600);
    return path;
  }
  static void age(const fs::path& path, int seconds) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }
  // Makes eight different files, and copies of these in turn.
  std::vector<fs::path> make_many(int count) {
    std::vector<fs::path> paths;
    for (int i = 0; i < std::min(count, 8); ++i) paths.push_back(make(i));
    for (int i = 8; i < count; ++i) {
      paths.push_back(root_ / "data" / (std::to_string(i) + ".h5"));
      fs::copy_file(paths[static_cast<std::size_t>(i) % 8], paths.back());
      age(paths.back(), 3600);
    }
    return paths;
  }
  // Opens with the index, and returns how many files the child described.
  std::pair<Files, std::uint64_t> open(const std::vector<fs::path>& paths) const {
    const std::uint64_t before = files_described();
    Files files = File::open_all(paths, names_, {}, {.index_folder = root_ / "index"});
    return {std::move(files), files_described() - before};
  }
  [[nodiscard]] fs::path index_file() const { return fs::directory_iterator(root_ / "index")->path(); }

  const std::vector<std::string> names_ = {"/x", "g/y"};
  fs::path root_;
};

std::vector<float> read(const File& file, const std::string& name) {
  const Shape& shape = file.dataset(name).shape;
  std::vector<float> values(static_cast<std::size_t>(*element_count(shape)));
  file.read(name, Shape(shape.size(), 0), shape, std::as_writable_bytes(std::span(values)));
  return values;
}

void expect_equal(const Files& a, const Files& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]->path(), b[i]->path());
    for (const char* name : {"/x", "/g/y"}) {
      EXPECT_EQ(a[i]->dataset(name).shape, b[i]->dataset(name).shape);
      EXPECT_EQ(a[i]->dataset(name).through_child, b[i]->dataset(name).through_child);
      EXPECT_EQ(read(*a[i], name), read(*b[i], name)) << a[i]->path();
    }
  }
}

std::string contents_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Each of 200 files has its own contents, whichever process described it. If two files are bad, the first is reported.
TEST_F(OpenAll, GivesEachFileAsItIs) {
  const std::vector<fs::path> paths = make_many(200);
  const Files files = File::open_all(paths, names_);
  for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(read(*files[i], "/x").front(), static_cast<float>(i % 8) * 1000);
  put(paths[150], "no");
  put(paths[70], contents_of(paths[70]).substr(0, 700));
  try {
    static_cast<void>(File::open_all(paths, names_));
    ADD_FAILURE() << "damaged files are refused";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("70.h5"));
  }
  std::vector<std::size_t> bad;
  const Files rest = File::open_all(paths, names_, [&](std::size_t i, const DataError&) { bad.push_back(i); });
  EXPECT_EQ(bad, (std::vector<std::size_t>{70, 150}));
  EXPECT_EQ(read(*rest[71], "/g/y").front(), 7000);
}

TEST_F(OpenAll, AsksOnceWithAnIndex) {
  const std::vector<fs::path> paths = make_many(70);
  const auto [first, asked] = open(paths);
  EXPECT_EQ(asked, 70U);
  const auto [second, asked_again] = open(paths);
  EXPECT_EQ(asked_again, 0U);
  expect_equal(first, second);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "data"), fs::directory_iterator()), 70) << "nothing is written there";
  EXPECT_EQ(open({paths[3], paths[50]}).second, 0U) << "some of them";
  const std::vector<std::string> others = {"/x"};
  const std::uint64_t before = files_described();
  EXPECT_EQ(File::open_all(paths, others, {}, {.index_folder = root_ / "index"}).size(), 70U);
  EXPECT_EQ(files_described() - before, 70U) << "of other data sets it knows nothing";
}

TEST_F(OpenAll, AttributesComeFromTheIndexToo) {
  const std::vector<float> values(24);
  const std::vector<Attribute> attributes = {{"rate", 240.0}, {"session", std::string("a")}};
  std::vector<Array> arrays(2);
  arrays[0].name = "/x";
  arrays[1].name = "/g/y";
  for (Array& array : arrays) {
    array.shape = {6, 4};
    array.bytes = std::as_bytes(std::span(values));
  }
  const std::vector<fs::path> paths = {root_ / "data" / "a.h5"};
  write_file(paths[0], arrays, attributes);
  age(paths[0], 3600);
  for (const std::uint64_t expected : {1U, 0U}) {
    const auto [files, asked] = open(paths);
    EXPECT_EQ(asked, expected);
    EXPECT_TRUE(files[0]->attributes("/").all == attributes);
    EXPECT_TRUE(files[0]->attributes("/x").all.empty());
  }
}

TEST_F(OpenAll, AFileThatChangedIsAskedAgain) {
  std::vector<fs::path> paths = make_many(8);
  EXPECT_EQ(open(paths).second, 8U);
  make(1, 9);           // now a larger file
  age(paths[2], 1800);  // only touched: same bytes, another time
  std::string other = contents_of(paths[3]);
  const fs::file_time_type time = fs::last_write_time(paths[3]);
  other[700] = static_cast<char>(other[700] ^ 1);  // in the head of the file, between or inside its parts
  put(paths[3], other);
  fs::last_write_time(paths[3], time);
  paths.push_back(make(8));  // a new file
  const std::uint64_t before = files_described();
  std::set<std::size_t> refused;
  const auto failed = [&](std::size_t i, const DataError&) { refused.insert(i); };
  const Files files = File::open_all(paths, names_, failed, {.index_folder = root_ / "index"});
  EXPECT_EQ(files_described() - before, 4U);
  EXPECT_EQ(files[1]->dataset("/x").shape, (Shape{9, 4}));
  EXPECT_EQ(read(*files[8], "/x").front(), 8000);
  for (const std::size_t i : refused) EXPECT_EQ(i, 3U);
  fs::remove(paths[0]);
  paths.erase(paths.begin());
  paths.erase(paths.begin() + 2);
  EXPECT_EQ(open(paths).second, 0U);
  const std::uintmax_t size = fs::file_size(index_file());
  paths.push_back(make(9));
  EXPECT_EQ(open(paths).second, 1U);
  EXPECT_LE(fs::file_size(index_file()), size + 8) << "one is new, one is gone";
}

// Nothing is kept, because within a tick of the clock a second write would leave size and time unchanged.
TEST_F(OpenAll, OfAFileThatJustChangedNothingIsKept) {
  const std::vector<fs::path> paths = make_many(3);
  age(paths[1], 0);
  EXPECT_EQ(open(paths).second, 3U);
  EXPECT_EQ(open(paths).second, 1U);
}

TEST_F(OpenAll, GoesOnWhereNoIndexCanBeWritten) {
  const std::vector<fs::path> paths = make_many(3);
  put(root_ / "index", "a file where a folder should be");
  EXPECT_EQ(open(paths).second, 3U);
  EXPECT_EQ(open(paths).second, 3U);
}

TEST_F(OpenAll, ADamagedIndexIsMadeAnew) {
  const std::vector<fs::path> paths = make_many(3);
  const Files plain = open(paths).first;
  const std::string good = contents_of(index_file());
  for (const std::string& bad : {std::string(), good.substr(0, 10), good.substr(0, good.size() - 1), good + "x",
                                 "millrace" + good, std::string(5000, '\xFF')}) {
    put(index_file(), bad);
    const auto [files, asked] = open(paths);
    EXPECT_EQ(asked, 3U) << bad.size();
    expect_equal(files, plain);
    EXPECT_EQ(open(paths).second, 0U);
  }
}

// An index of invented bytes with the right checksum: its answers about files are checked like those of the child.
TEST_F(OpenAll, HostileBytesInAnIndexDoNoHarm) {
  const std::vector<fs::path> paths = make_many(3);
  static_cast<void>(open(paths));
  const fs::path index = index_file();
  const std::string good = contents_of(index);
  std::uint32_t words = 0;
  std::memcpy(&words, good.data(), sizeof words);
  const std::size_t sum_at = sizeof words + words;
  const std::size_t from = sum_at + sizeof(std::uint32_t);
  const char* const wanted = std::getenv("MILLRACE_MUTANTS");
  const int mutants = wanted != nullptr ? std::atoi(wanted) : 60;
  Philox random(make_key(7, 0, 0, 0));
  int as_said = 0;
  for (int i = 0; i < mutants; ++i) {
    std::string bytes = good;
    for (std::uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = from + random() % (bytes.size() - from);
      bytes[at] = static_cast<char>(random() % 4 == 0 ? 0xFF : random());
    }
    if (random() % 8 == 0) bytes.resize(from + random() % (bytes.size() - from));
    const std::uint32_t sum = crc32c(std::as_bytes(std::span(bytes)).subspan(from));
    std::memcpy(bytes.data() + sum_at, &sum, sizeof sum);
    put(index, bytes);
    try {
      for (const auto& file : open(paths).first) {
        for (const char* name : {"/x", "/g/y"}) {
          if (file->dataset(name).shape.size() > 2 || *element_count(file->dataset(name).shape) > 1'000'000) continue;
          if (file->dataset(name).dtype == DType::f32) static_cast<void>(read(*file, name));
        }
      }
      ++as_said;
    } catch (const DataError&) {
      continue;  // a read threw, because the data that the index names do not exist
    }
  }
  EXPECT_GT(as_said, mutants / 4);
}

}  // namespace
}  // namespace millrace::hdf5
