#include "millrace/data/hdf5.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/data/detail/chunk_filters.h"

namespace millrace::data {
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

// Bytes that compress somewhat; booleans are 0 or 1.
std::string pattern(std::size_t bytes, DType dtype, std::uint64_t seed) {
  std::string text(bytes, '\0');
  Philox random(make_key(seed, 0, 0, 0));
  for (char& c : text) {
    const std::uint32_t draw = random();
    c = static_cast<char>(dtype == DType::boolean ? draw & 1U : draw % 7 == 0 ? draw >> 8U : draw & 3U);
  }
  return text;
}

std::string read(const Hdf5File& file, const std::string& name, const Shape& offset, const Shape& count) {
  std::string bytes(static_cast<std::size_t>(*element_count(count)) * size_of(file.dataset(name).dtype), '\xEE');
  file.read(name, offset, count, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string read_all(const Hdf5File& file, const std::string& name) {
  const Shape& shape = file.dataset(name).shape;
  return read(file, name, Shape(shape.size(), 0), shape);
}

// The block of an array in memory.
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
  Hdf5Array array;
  std::string bytes;
};

constexpr DType kAll[] = {DType::boolean, DType::u8,  DType::i8,   DType::i16, DType::u16, DType::i32, DType::u32, DType::i64,
                          DType::u64,     DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128};

// Every type with every filter, chunks that end beyond the edge.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : kAll) {
    for (int filters = 0; filters < 17; ++filters) {
      Hdf5Array array{
          .name = "/" + std::string(name_of(dtype)) + "/" + std::to_string(filters), .dtype = dtype, .shape = {5, 7, 9}};
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

std::vector<Hdf5Array> arrays_of(const std::vector<Case>& cases) {
  std::vector<Hdf5Array> arrays;
  for (const Case& one : cases) {
    arrays.push_back(one.array);
    arrays.back().bytes = std::as_bytes(std::span(one.bytes));
  }
  return arrays;
}

TEST_F(Hdf5Test, EveryTypeAndFilterAndBlockComesBack) {
  const std::vector<Case> cases = all_cases();
  write_hdf5(root_ / "a.h5", arrays_of(cases));
  const auto file = Hdf5File::open(root_ / "a.h5");
  ASSERT_EQ(file->datasets().size(), cases.size());
  EXPECT_THAT(file->unreadable(), IsEmpty());
  const std::vector<std::pair<Shape, Shape>> blocks = {{{0, 0, 0}, {5, 7, 9}}, {{2, 4, 0}, {2, 3, 9}}, {{1, 2, 3}, {3, 4, 5}},
                                                       {{4, 6, 8}, {1, 1, 1}}, {{0, 0, 0}, {5, 7, 4}}, {{2, 0, 0}, {2, 4, 9}},
                                                       {{0, 3, 2}, {5, 0, 3}}};
  for (const Case& one : cases) {
    const Hdf5Dataset& dataset = file->dataset(one.array.name);
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

}  // namespace
}  // namespace millrace::data
