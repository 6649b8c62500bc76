#include "millrace/data/sources/hdf5_source.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Hdf5SourceTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("source_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Makes a file; element i of its data set is start + i.
  fs::path make(const std::string& name, const Shape& shape, float start, const Shape& labels = {}) {
    std::vector<float> values(static_cast<std::size_t>(*element_count(shape)));
    std::iota(values.begin(), values.end(), start);
    std::vector<std::int32_t> marks(static_cast<std::size_t>(*element_count(labels)), static_cast<std::int32_t>(start));
    std::vector<hdf5::Array> arrays(2);
    arrays[0] = {.name = "/vis", .dtype = DType::f32, .shape = shape, .bytes = std::as_bytes(std::span(values)), .chunk = shape};
    arrays[0].chunk[0] = 1;
    arrays[1] = {.name = "/label", .dtype = DType::i32, .shape = labels, .bytes = std::as_bytes(std::span(marks))};
    hdf5::write_file(root_ / name, arrays);
    return root_ / name;
  }

  static std::vector<float> read(const Source& source, const std::vector<std::int64_t>& indices) {
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::byte*> data;
    for (const Field& field : source.fields()) rows.emplace_back(field.bytes() * indices.size());
    for (auto& row : rows) data.push_back(row.data());
    source.read(indices, Rows{data}, ReadRandom(0, 0, indices));
    std::vector<float> values(rows[0].size() / 4);
    std::memcpy(values.data(), rows[0].data(), rows[0].size());
    return values;
  }

  fs::path root_;
};

TEST_F(Hdf5SourceTest, OneSampleAFileWithAPartKept) {
  const std::vector<fs::path> files = {make("a.h5", {2, 3, 4}, 0), make("b.h5", {2, 3, 4}, 100)};
  const Hdf5Source source(files, {{"x", "/vis", {{1, 3}}}, {"label", "/label"}}, Hdf5Samples::file);
  EXPECT_EQ(source.size(), 2);
  EXPECT_THAT(source.fields(), testing::ElementsAre(Field{"x", DType::f32, {2, 3, 2}}, Field{"label", DType::i32, {}}));
  EXPECT_EQ(read(source, {1, 0}), (std::vector<float>{101, 102, 105, 106, 109, 110, 113, 114, 117, 118, 121, 122,  //
                                                      1,   2,   5,   6,   9,   10,  13,  14,  17,  18,  21,  22}));
  EXPECT_EQ(source.describe(1), files[1].string());
  const Hdf5Source same(files, {{"x", "/vis", {{1, 3}}}, {"label", "/label"}}, Hdf5Samples::file);
  const Hdf5Source other(files, {{"x", "/vis", {{0, 2}}}, {"label", "/label"}}, Hdf5Samples::file);
  EXPECT_EQ(source.fingerprint(), same.fingerprint());
  EXPECT_NE(source.fingerprint(), other.fingerprint());
  const std::vector<FileStamp> stamps = source.stamps();
  EXPECT_EQ(stamps.at(1).name, "b.h5");
  make("b.h5", {2, 3, 4}, 7);
  const Hdf5Source changed(files, {{"x", "/vis", {{1, 3}}}, {"label", "/label"}}, Hdf5Samples::file);
  EXPECT_EQ(changed.fingerprint(), source.fingerprint());
  EXPECT_EQ(changed.stamps().at(0), stamps[0]);
  EXPECT_NE(changed.stamps().at(1).digest, stamps[1].digest);
}

TEST_F(Hdf5SourceTest, OneSampleARowOverSeveralFiles) {
  const std::vector<fs::path> files = {make("a.h5", {2, 3}, 0, {2}), make("b.h5", {4, 3}, 100, {4})};
  const Hdf5Source source(files, {{"x", "/vis"}, {"label", "/label"}}, Hdf5Samples::row);
  EXPECT_EQ(source.size(), 6);
  EXPECT_EQ(read(source, {1, 2, 3, 0, 5}), (std::vector<float>{3, 4, 5, 100, 101, 102, 103, 104, 105, 0, 1, 2, 109, 110, 111}));
  EXPECT_EQ(source.describe(3), files[1].string() + " row 1");
  const std::vector<std::int64_t> ahead = {0, 5};
  source.will_need(ahead, ReadRandom(0, 0, ahead));
}

TEST_F(Hdf5SourceTest, FilesThatDisagreeAreNamed) {
  const std::vector<fs::path> shapes = {make("c00.h5", {48, 128, 4}, 0), make("c07.h5", {48, 127, 4}, 0)};
  const std::vector<Hdf5Field> vis = {{"x", "/vis"}};
  const auto open = [](const std::vector<fs::path>& files, const std::vector<Hdf5Field>& fields, Hdf5Samples samples) {
    return refusal([&] { static_cast<void>(Hdf5Source(files, fields, samples)); });
  };
  EXPECT_EQ(open(shapes, vis, Hdf5Samples::file), "DataError  c07.h5 /vis is [48,127,4], c00.h5 has [48,128,4]\n  where    \"" +
                                                      shapes[1].string() + "\" and \"" + shapes[0].string() +
                                                      "\"\n  next     remove or convert the file that differs");
  const std::vector<fs::path> rows = {make("r.h5", {4, 3}, 0, {5})};
  EXPECT_THAT(open(rows, {{"x", "/vis"}, {"label", "/label"}}, Hdf5Samples::row),
              HasSubstr("r.h5 /label has 5 rows, /vis has 4"));
  EXPECT_THAT(open(rows, {{"x", "/vis", {{0, 4}}}}, Hdf5Samples::row),
              HasSubstr("ConfigError  r.h5 /vis is [4,3], the part to keep is 0 to 4 of 3"));
  EXPECT_THAT(open({}, vis, Hdf5Samples::file), HasSubstr("there is no HDF5 file"));
  EXPECT_THAT(open(rows, {{"x", "/map"}}, Hdf5Samples::file), HasSubstr("r.h5: dataset /map is missing (has: /label, /vis)"));
}

}  // namespace
}  // namespace millrace::data
