#include "millrace/hdf5/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/philox.h"
#include "millrace/hdf5/detail/chunk_filters.h"
#include "tests/support/refusal.h"

namespace millrace::hdf5 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Hdf5Test : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("hdf5_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

// Bytes that can be compressed a little; booleans are 0 or 1.
std::string pattern(std::size_t bytes, DType dtype, std::uint64_t seed) {
  std::string text(bytes, '\0');
  Philox random(make_key(seed, 0, 0, 0));
  for (char& c : text) {
    const std::uint32_t draw = random();
    c = static_cast<char>(dtype == DType::boolean ? draw & 1U : draw % 7 == 0 ? draw >> 8U : draw & 3U);
  }
  return text;
}

std::string read(const File& file, const std::string& name, const Shape& offset, const Shape& count) {
  std::string bytes(static_cast<std::size_t>(*element_count(count)) * size_of(file.dataset(name).dtype), '\xEE');
  file.read(name, offset, count, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string read_all(const File& file, const std::string& name) {
  const Shape& shape = file.dataset(name).shape;
  return read(file, name, Shape(shape.size(), 0), shape);
}

// The bytes of a block of an array in memory.
std::string slab(const std::string& all, const Shape& shape, const Shape& offset, const Shape& count, std::size_t element) {
  std::string bytes;
  Shape at(count.size(), 0);
  if (*element_count(count) == 0) return bytes;
  while (true) {
    std::size_t index = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      index = index * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(offset[d] + at[d]);
    }
    bytes += all.substr(index * element, element);
    std::size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == count[d - 1]) at[--d] = 0;
    if (d == 0) return bytes;
  }
}

struct Case {
  Array array;
  std::string bytes;
};

constexpr DType kAll[] = {DType::boolean, DType::u8,  DType::i8,   DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                          DType::u64,     DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

// Every type with every filter, and chunks that end beyond the edge.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : kAll) {
    for (int filters = 0; filters < 17; ++filters) {
      Array array{.name = "/" + std::string(name_of(dtype)) + "/" + std::to_string(filters), .dtype = dtype, .shape = {5, 7, 9}};
      if (filters < 16) {
        array.chunk = {2, 4, 9};
        array.shuffle = (filters & 1) != 0;
        array.fletcher32 = (filters & 2) != 0;
        array.deflate = filters / 4 == 1 ? 4 : 0;
        array.lz4 = filters / 4 == 2;
        array.zstd = filters / 4 == 3 ? 3 : 0;
      }
      const std::string bytes = pattern(315 * size_of(dtype), dtype, cases.size());
      cases.push_back({array, bytes});
    }
  }
  return cases;
}

std::vector<Array> arrays_of(const std::vector<Case>& cases) {
  std::vector<Array> arrays;
  for (const Case& one : cases) {
    arrays.push_back(one.array);
    arrays.back().bytes = std::as_bytes(std::span(one.bytes));
  }
  return arrays;
}

TEST_F(Hdf5Test, EveryTypeAndFilterAndBlockComesBack) {
  const std::vector<Case> cases = all_cases();
  write_file(root_ / "a.h5", arrays_of(cases));
  const auto file = File::open(root_ / "a.h5");
  ASSERT_EQ(file->datasets().size(), cases.size());
  EXPECT_THAT(file->unreadable(), IsEmpty());
  const std::vector<std::pair<Shape, Shape>> blocks = {{{0, 0, 0}, {5, 7, 9}}, {{2, 4, 0}, {2, 3, 9}}, {{1, 2, 3}, {3, 4, 5}},
                                                       {{4, 6, 8}, {1, 1, 1}}, {{0, 0, 0}, {5, 7, 4}}, {{2, 0, 0}, {2, 4, 9}},
                                                       {{0, 3, 2}, {5, 0, 3}}};
  for (const Case& one : cases) {
    const Dataset& dataset = file->dataset(one.array.name);
    EXPECT_FALSE(dataset.through_child) << one.array.name << ": " << dataset.reason;
    EXPECT_EQ(dataset.dtype, one.array.dtype) << one.array.name;
    EXPECT_EQ(dataset.chunk, one.array.chunk);
    EXPECT_EQ(read_all(*file, one.array.name), one.bytes);
    for (const auto& [offset, count] : blocks) {
      EXPECT_EQ(read(*file, one.array.name, offset, count), slab(one.bytes, {5, 7, 9}, offset, count, size_of(dataset.dtype)))
          << one.array.name << to_text(offset) << to_text(count);
    }
  }
  EXPECT_THAT(file->filters("/f32/7"), ElementsAre("shuffle", "deflate", "fletcher32"));
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Case floats(const std::string& name, const Shape& shape, const Shape& chunk = {}, int deflate = 0) {
  return {{.name = name, .dtype = DType::f32, .shape = shape, .chunk = chunk, .deflate = deflate, .shuffle = deflate > 0},
          pattern(static_cast<std::size_t>(*element_count(shape)) * 4, DType::f32, 7)};
}

TEST_F(Hdf5Test, ScalarsAndEmptyAndLargeArraysComeBack) {
  const std::vector<Case> cases = {floats("/scalar", {}), floats("/none", {0, 3}), floats("/rows", {700, 9000}, {64, 512}, 1),
                                   floats("/whole", {3000, 2000}), floats("/g/h/one", {1}, {1}, 9)};
  write_file(root_ / "a.h5", arrays_of(cases));
  const auto file = File::open(root_ / "a.h5");
  for (const Case& one : cases) EXPECT_EQ(read_all(*file, one.array.name), one.bytes) << one.array.name;
  const Shape offset = {1, 500};
  const Shape count = {2000, 700};  // more than one window
  EXPECT_EQ(read(*file, "/whole", offset, count), slab(cases[3].bytes, {3000, 2000}, offset, count, 4));
  EXPECT_EQ(read(*file, "whole", {0, 1999}, {3000, 1}), slab(cases[3].bytes, {3000, 2000}, {0, 1999}, {3000, 1}, 4));
  file->will_need("/whole", offset, count);
  file->will_need("/rows", Shape{0, 0}, Shape{700, 9000});
  file->will_need("/rows", Shape{0, 0}, Shape{701, 9000});
  file->will_need("/nothing", Shape{}, Shape{});
}

TEST_F(Hdf5Test, TheLibraryReadsTheSameWhenDirectReadingIsOff) {
  const std::vector<Case> cases = {floats("/whole", {30, 20}), floats("/rows", {70, 90}, {8, 64}, 1)};
  const std::vector<fs::path> paths = {root_ / "a.h5"};
  write_file(paths[0], arrays_of(cases));
  const std::uint64_t before = blocks_read_directly();
  const auto file = File::open_all(paths, {}, {}, {.direct = false}).front();
  for (const Case& one : cases) {
    EXPECT_TRUE(file->dataset(one.array.name).through_child);
    EXPECT_EQ(read_all(*file, one.array.name), one.bytes) << one.array.name;
  }
  EXPECT_EQ(blocks_read_directly(), before);
  EXPECT_EQ(read_all(*File::open(paths[0]), "/rows"), cases[1].bytes);
  EXPECT_GT(blocks_read_directly(), before);
}

// The processes that this process has started to read HDF5 files.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream line(entry.path() / "stat");
    pid_t process = 0, parent = 0;
    std::string name, state;
    if (line >> process >> name >> state >> parent && parent == ::getpid() && name == "(millrace-hdf5)") found.push_back(process);
  }
  return found;
}

// A batch system signals all processes of a job. The training program then still needs samples, until it has saved.
TEST_F(Hdf5Test, ASignalToStopDoesNotEndTheChild) {
  const Case rows = floats("/rows", {70, 90});
  write_file(root_ / "a.h5", arrays_of({rows}));
  const std::vector<fs::path> paths = {root_ / "a.h5"};
  const auto file = File::open_all(paths, {}, {}, {.direct = false}).front();
  ASSERT_EQ(read_all(*file, "/rows"), rows.bytes);
  const std::vector<pid_t> readers = children();
  ASSERT_EQ(readers.size(), 1U);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    ASSERT_EQ(::kill(readers[0], number), 0);
    EXPECT_EQ(read_all(*file, "/rows"), rows.bytes) << number;
  }
}

// An attribute of each kind, ordered by name.
std::vector<Attribute> some_attributes() {
  return {{"blind", true},  {"count", std::int64_t{-3}},         {"most", std::numeric_limits<std::uint64_t>::max()},
          {"rate", 239.76}, {"session", std::string("allen µ")}, {"silent", std::string()}};
}

TEST_F(Hdf5Test, AttributesOfTheRootComeBack) {
  const std::vector<Attribute> attributes = some_attributes();
  const std::vector<Case> cases = {floats("/a", {4}), floats("/b", {4})};
  const std::vector<Attribute> turned(attributes.rbegin(), attributes.rend());
  write_file(root_ / "a.h5", arrays_of(cases), turned);
  const std::vector<std::string> wanted = {"/a"};
  const std::shared_ptr<const File> files[] = {File::open(root_ / "a.h5"), File::open(root_ / "a.h5", wanted)};
  for (const auto& file : files) {
    const Attributes& found = file->attributes("/");
    ASSERT_TRUE(found.all == attributes) << joined(found.all, " ", value_text);
    EXPECT_EQ(found.left_out, 0U);
    EXPECT_EQ(found.failure, "");
    EXPECT_EQ(found.find("rate"), &found.all[3]);
    EXPECT_EQ(found.find("frame"), nullptr);
    EXPECT_TRUE(file->attributes("a").all.empty());
    EXPECT_EQ(read_all(*file, "/a"), cases[0].bytes);
  }
  EXPECT_THAT(refusal([&] { static_cast<void>(files[0]->attributes("/c")); }), HasSubstr("dataset /c is missing (has: /a, /b)"));
  EXPECT_EQ(joined(attributes, " ", value_text), "true -3 18446744073709551615 239.76 \"allen µ\" \"\"");
  EXPECT_EQ(number_of(attributes[1]).value_or(0), -3);
  EXPECT_EQ(number_of(attributes[3]).value_or(0), 239.76);
  for (const std::size_t other : {0U, 4U, 5U}) EXPECT_FALSE(number_of(attributes[other]).has_value()) << other;
}

TEST_F(Hdf5Test, EqualContentGivesEqualBytes) {
  const std::vector<Case> cases = {floats("/a", {30, 40}, {8, 8}, 4)};
  write_file(root_ / "a.h5", arrays_of(cases), some_attributes());
  write_file(root_ / "b.h5", arrays_of(cases), some_attributes());
  EXPECT_EQ(text_of(root_ / "a.h5"), text_of(root_ / "b.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 2) << "temporary files stay";
}

TEST_F(Hdf5Test, ManyThreadsReadOneFile) {
  const std::vector<Case> cases = {floats("/a", {16, 64, 64}, {1, 64, 64}, 4)};
  write_file(root_ / "a.h5", arrays_of(cases));
  const auto file = File::open(root_ / "a.h5");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 64; ++i) {
        const std::int64_t row = (i * 7 + t) % 16;
        wrong += static_cast<int>(read(*file, "/a", {row, t, 0}, {1, 64 - t, 64}) !=
                                  slab(cases[0].bytes, {16, 64, 64}, {row, t, 0}, {1, 64 - t, 64}, 4));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Hdf5Test, SaysWhatIsMissingAndOutside) {
  write_file(root_ / "c07.h5", arrays_of({floats("/map", {2, 3}), floats("/index_map/freq", {4})}));
  const std::vector<std::string> wanted = {"/vis"};
  EXPECT_EQ(refusal([&] { static_cast<void>(File::open(root_ / "c07.h5", wanted)); }),
            "DataError  c07.h5: dataset /vis is missing (has: /index_map, /map)\n  where    \"" + (root_ / "c07.h5").string() +
                "\"\n  next     name an existing one; millrace inspect shows all of the file");
  const std::vector<std::string> deeper = {"/index_map/ra"};
  EXPECT_THAT(refusal([&] { static_cast<void>(File::open(root_ / "c07.h5", deeper)); }), HasSubstr("(has: /index_map/freq)"));
  const std::vector<std::string> group = {"/index_map"};
  EXPECT_THAT(refusal([&] { static_cast<void>(File::open(root_ / "c07.h5", group)); }), HasSubstr("not a dataset"));
  const auto file = File::open(root_ / "c07.h5");
  EXPECT_THAT(refusal([&] {
                read(*file, "/map", {1, 1}, {1, 3});
              }),
              HasSubstr("dataset /map has shape [2,3]; block [1,3] at [1,1] was requested"));
  EXPECT_THAT(refusal([&] { static_cast<void>(file->dataset("/vis")); }), HasSubstr("(has: /index_map/freq, /map)"));
}

TEST_F(Hdf5Test, RefusesWhatIsNoFileOfItsKind) {
  const auto open = [&](const fs::path& path) { return refusal([&] { static_cast<void>(File::open(path)); }); };
  write_text(root_ / "empty.h5", "");
  write_text(root_ / "one.h5", "x");
  write_text(root_ / "text\n.h5", std::string(5000, 'x'));
  ASSERT_EQ(::mkfifo((root_ / "fifo.h5").c_str(), 0600), 0);
  fs::create_symlink(root_ / "loop.h5", root_ / "loop.h5");
  for (const char* name : {"empty.h5", "one.h5", "text\n.h5"}) {
    EXPECT_THAT(open(root_ / name), HasSubstr("is not a valid HDF5 file: unable to open file: ")) << name;
  }
  EXPECT_THAT(open(root_), HasSubstr("is not a regular file"));
  EXPECT_THAT(open(root_ / "fifo.h5"), HasSubstr("is not a regular file"));
  EXPECT_THAT(open(root_ / "loop.h5"), HasSubstr("can't be opened"));
  EXPECT_THAT(open(root_ / "gone.h5"), HasSubstr("can't be opened: No such file"));
}

TEST_F(Hdf5Test, ManyFilesOpenedTogetherFailOnTheirOwn) {
  std::vector<fs::path> paths;
  for (int i = 0; i < 66; ++i) {
    paths.push_back(root_ / (std::to_string(i) + ".h5"));
    i % 10 == 3 ? write_text(paths.back(), "no") : write_file(paths.back(), arrays_of({floats("/a", {i + 1})}));
  }
  std::vector<std::size_t> bad;
  const auto files = File::open_all(paths, {}, [&](std::size_t i, const DataError&) { bad.push_back(i); });
  EXPECT_THAT(bad, ElementsAre(3U, 13U, 23U, 33U, 43U, 53U, 63U));
  for (std::size_t i = 0; i < 66; ++i) {
    ASSERT_EQ(files[i] == nullptr, i % 10 == 3);
    if (files[i]) {
      EXPECT_EQ(files[i]->dataset("/a").shape, Shape{static_cast<std::int64_t>(i) + 1});
    }
  }
  EXPECT_THROW(static_cast<void>(File::open_all(paths)), DataError);
}

TEST_F(Hdf5Test, AFileThatShrinksIsAnError) {
  const std::vector<Case> cases = {floats("/a", {64, 64}, {8, 64}, 4), floats("/b", {64, 64})};
  write_file(root_ / "a.h5", arrays_of(cases));
  const auto file = File::open(root_ / "a.h5");
  fs::resize_file(root_ / "a.h5", 3000);
  EXPECT_THAT(refusal([&] { read_all(*file, "/b"); }), HasSubstr("has become shorter"));
}

TEST_F(Hdf5Test, ADyingOrMissingChildIsAnErrorThatNamesIt) {
  write_file(root_ / "a.h5", arrays_of({floats("/a", {4})}));
  write_text(root_ / "child", "#!/bin/sh\nkill -SEGV $$\n");
  fs::permissions(root_ / "child", fs::perms::owner_all);
  ::setenv("MILLRACE_HDF5_CHILD", (root_ / "child").c_str(), 1);
  const std::string crashed = refusal([&] { static_cast<void>(File::open(root_ / "a.h5")); });
  ::setenv("MILLRACE_HDF5_CHILD", (root_ / "nowhere").c_str(), 1);
  const std::string missing = refusal([&] { static_cast<void>(File::open(root_ / "a.h5")); });
  ::unsetenv("MILLRACE_HDF5_CHILD");
  EXPECT_THAT(crashed,
              HasSubstr("gave no answer: ended by signal 11 (Segmentation fault)\n  where    \"" + (root_ / "a.h5").string()));
  EXPECT_THAT(missing, HasSubstr("nowhere\", which does not exist or can't be executed\n  where    MILLRACE_HDF5_CHILD\n"));
}

TEST_F(Hdf5Test, WritingFailsWithTheLibrarysWords) {
  EXPECT_THAT(refusal([&] { write_file(root_ / "gone" / "a.h5", arrays_of({floats("/a", {4})})); }),
              HasSubstr("can't be written: No such file or directory"));
  EXPECT_THAT(refusal([&] {
                write_file(root_ / "a.h5", arrays_of({floats("/a", {4}), floats("/a", {4000, 4000})}));
              }),
              HasSubstr("can't be written: /a: unable to create dataset"));
  const std::vector<Attribute> twice(2, Attribute{"rate", 240.0});
  EXPECT_THAT(refusal([&] {
                write_file(root_ / "a.h5", arrays_of({floats("/a", {4000, 4000})}), twice);
              }),
              HasSubstr("can't be written: attribute rate: "));
  const std::vector<Attribute> long_text = {{"text", std::string(kMaxAttributeText + 1, 'x')}};
  EXPECT_THAT(refusal([&] { write_file(root_ / "a.h5", {}, long_text); }), HasSubstr("attribute text is too long a text"));
  EXPECT_TRUE(fs::is_empty(root_)) << "nothing of a failed write stays";
}

TEST(ChunkFilters, ChecksumAndShuffle) {
  // The expected sum was computed by hand from the words 0x0102 and 0x0300.
  const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_EQ(detail::fletcher32(bytes), 0x0504U << 16U | 0x0402U);
  EXPECT_EQ(detail::fletcher32({}), 0U);
  const std::vector<std::byte> ones(100'000, std::byte{0xFF});  // every word is 65535, so the sums fold to 65535 and not to 0
  EXPECT_EQ(detail::fletcher32(ones), 0xFFFFFFFFU);
  for (const std::size_t unit : {1, 2, 3, 4, 8, 16}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{4099}}) {
      std::vector<std::byte> in(size);
      for (std::size_t i = 0; i < size; ++i) in[i] = static_cast<std::byte>(i * 37);
      std::vector<std::byte> out(size);
      detail::unshuffle(in, out, unit);
      const std::size_t count = size / unit;
      for (std::size_t i = 0; i < size; ++i) {
        const std::size_t from = i < count * unit ? i % unit * count + i / unit : i;
        ASSERT_EQ(out[i], in[from]) << unit << ' ' << size << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::hdf5
