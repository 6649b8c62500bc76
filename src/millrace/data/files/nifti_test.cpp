#include "millrace/data/files/nifti.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/format/deflate.h"
#include "tests/support/nifti_maker.h"
#include "tests/support/refusal.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using test::NiftiMaker;
using testing::ElementsAre;
using testing::HasSubstr;

class NiftiTest : public testing::Test {
 protected:
  NiftiTest()
      : folder_(stdfs::temp_directory_path() / ("millrace-nifti-" + std::to_string(::getpid()))), path_(folder_ / "v.nii") {
    stdfs::create_directories(folder_);
  }
  ~NiftiTest() override { stdfs::remove_all(folder_); }

  static void put(const stdfs::path& path, const std::string& text) {
    stdfs::remove(path);
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string gzip(const std::string& text) {
    const auto packed = format::deflate(format::DeflateFrame::gzip, std::as_bytes(std::span(text)));
    return {reinterpret_cast<const char*>(packed.data()), packed.size()};
  }
  // The error of opening the file and reading all of it.
  static std::string refusal(const stdfs::path& path) {
    return refusal_reason<DataError>([&] {
      const NiftiFile file(path);
      std::vector<std::byte> out(file.header().voxel_bytes);
      file.read(out);
    });
  }
  template <class T>
  static std::vector<T> read(const NiftiFile& file, const Shape& offset, const Shape& size) {
    std::vector<T> out(static_cast<std::size_t>(*element_count(size)));
    file.read(offset, size, std::as_writable_bytes(std::span(out)));
    return out;
  }
  template <class T>
  static std::vector<T> read(const NiftiFile& file) {
    return read<T>(file, Shape(file.header().shape.size(), 0), file.header().shape);
  }

  stdfs::path folder_;
  stdfs::path path_;
};

std::vector<std::int16_t> ramp(std::size_t size) {
  std::vector<std::int16_t> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<std::int16_t>(i * 7 - 100);
  return values;
}

TEST_F(NiftiTest, BothVersionsAndByteOrdersPlainAndPackedAreTheSame) {
  const std::vector<std::int16_t> values = ramp(2 * 3 * 4 * 5);
  for (const int version : {1, 2}) {
    for (const bool swapped : {false, true}) {
      NiftiMaker maker{.version = version, .swapped = swapped, .dim = {5, 4, 3, 2}, .slope = 2, .intercept = -1};
      const std::string whole = maker.file(values);
      put(path_, whole);
      put(folder_ / "v.nii.gz", gzip(whole));
      for (const char* name : {"v.nii", "v.nii.gz"}) {
        const NiftiFile file(folder_ / name);
        EXPECT_EQ(file.header().version, version);
        EXPECT_EQ(file.header().swapped, swapped);
        EXPECT_EQ(file.header().shape, (Shape{2, 3, 4, 5}));
        EXPECT_EQ(file.header().dtype, DType::i16);
        EXPECT_TRUE(file.header().scaled);
        EXPECT_EQ(read<std::int16_t>(file), values);
        std::vector<float> scaled(values.size());
        file.read_scaled(scaled);
        for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(scaled[i], 2.0F * values[i] - 1.0F);
      }
    }
  }
}

TEST_F(NiftiTest, ABlockIsThatPartOfTheVolume) {
  const std::vector<std::int16_t> values = ramp(4 * 3 * 5 * 6);
  const std::string whole = NiftiMaker{.dim = {6, 5, 3, 4}}.file(values);
  put(path_, whole);
  put(folder_ / "v.nii.gz", gzip(whole));
  const std::pair<Shape, Shape> blocks[] = {
      {{0, 0, 0, 0}, {4, 3, 5, 6}}, {{1, 1, 2, 3}, {2, 2, 3, 2}}, {{3, 2, 4, 5}, {1, 1, 1, 1}}, {{1, 0, 0, 0}, {2, 3, 5, 6}},
      {{0, 1, 0, 0}, {4, 1, 5, 6}}, {{2, 0, 1, 0}, {2, 3, 2, 6}}, {{0, 0, 0, 2}, {4, 3, 5, 1}}};
  for (const auto& [offset, size] : blocks) {
    std::vector<std::int16_t> expected;
    for (std::int64_t t = offset[0]; t < offset[0] + size[0]; ++t) {
      for (std::int64_t z = offset[1]; z < offset[1] + size[1]; ++z) {
        for (std::int64_t y = offset[2]; y < offset[2] + size[2]; ++y) {
          for (std::int64_t x = offset[3]; x < offset[3] + size[3]; ++x) {
            expected.push_back(values[static_cast<std::size_t>(((t * 3 + z) * 5 + y) * 6 + x)]);
          }
        }
      }
    }
    for (const char* name : {"v.nii", "v.nii.gz"})
      EXPECT_EQ(read<std::int16_t>(NiftiFile(folder_ / name), offset, size), expected);
  }
  put(path_, NiftiMaker{.dim = {6}}.file(ramp(6)));
  EXPECT_THAT(read<std::int16_t>(NiftiFile(path_), {2}, {3}), ElementsAre(-86, -79, -72));
}

TEST_F(NiftiTest, APairIsFoundFromEitherName) {
  const std::vector<std::int16_t> values = ramp(24);
  NiftiMaker maker{.dim = {4, 3, 2}, .pair = true};
  put(folder_ / "p.hdr", maker.header());
  put(folder_ / "p.img", NiftiMaker::voxels(values, false));
  for (const char* name : {"p.hdr", "p.img"}) EXPECT_EQ(read<std::int16_t>(NiftiFile(folder_ / name)), values);
  put(folder_ / "q.hdr.gz", gzip(maker.header()));
  put(folder_ / "q.img.gz", gzip(NiftiMaker::voxels(values, false)));
  for (const char* name : {"q.hdr.gz", "q.img.gz"}) EXPECT_EQ(read<std::int16_t>(NiftiFile(folder_ / name)), values);
  stdfs::remove(folder_ / "p.img");
  EXPECT_THAT(refusal(folder_ / "p.hdr"), HasSubstr("can't be opened"));
}

TEST_F(NiftiTest, ScalingFollowsTheStandard) {
  const auto scaled = [&](float slope, float intercept, double value) {
    put(path_, NiftiMaker{.dim = {1}, .datatype = 64, .bitpix = 64, .slope = slope, .intercept = intercept}.file(
                   std::vector<double>{value}));
    std::vector<float> out(1);
    NiftiFile(path_).read_scaled(out);
    return out[0];
  };
  EXPECT_EQ(scaled(0.5F, 3, 8), 7.0F);
  EXPECT_EQ(scaled(0, 3, 8), 8.0F);
  EXPECT_EQ(scaled(std::numeric_limits<float>::quiet_NaN(), 3, 8), 8.0F);
  EXPECT_TRUE(std::signbit(scaled(2, 0, -0.0)));
  put(path_, NiftiMaker{.dim = {1}, .datatype = 32, .bitpix = 64}.file(std::vector<double>{0}));
  std::vector<float> out(1);
  EXPECT_THROW(NiftiFile(path_).read_scaled(out), DataError);
}

TEST_F(NiftiTest, TheAffineComesFromSformQformOrVoxelSizes) {
  NiftiMaker maker{.dim = {3, 5, 7}, .pixdim = {2, 3, 4}};
  put(path_, maker.file(ramp(105)));
  using Row = std::array<double, 4>;
  EXPECT_THAT(NiftiFile(path_).header().affine,
              ElementsAre(Row{-2, 0, 0, 2}, Row{0, 3, 0, -6}, Row{0, 0, 4, -12}, Row{0, 0, 0, 1}));
  // Half a turn about x changes the signs of y and z; qfac -1 changes that of z back.
  maker.qform = 1;
  maker.quatern = {1, 0, 0};
  maker.qoffset = {10, 20, 30};
  put(path_, maker.file(ramp(105)));
  EXPECT_THAT(NiftiFile(path_).header().affine,
              ElementsAre(Row{2, 0, 0, 10}, Row{0, -3, 0, 20}, Row{0, 0, -4, 30}, Row{0, 0, 0, 1}));
  maker.qfac = -1;
  put(path_, maker.file(ramp(105)));
  EXPECT_EQ(NiftiFile(path_).header().affine[2][2], 4);
  maker.sform = 2;
  maker.srow = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  put(path_, maker.file(ramp(105)));
  EXPECT_THAT(NiftiFile(path_).header().affine,
              ElementsAre(Row{1, 2, 3, 4}, Row{5, 6, 7, 8}, Row{9, 10, 11, 12}, Row{0, 0, 0, 1}));
}

TEST_F(NiftiTest, ExtensionsAreListedAndRead) {
  const std::vector<std::int16_t> values = ramp(2);
  const NiftiMaker maker{.dim = {2}, .extensions = {{6, "a comment"}, {4, "<xml/>"}}};
  put(path_, maker.file(values));
  put(folder_ / "v.nii.gz", gzip(maker.file(values)));
  for (const char* name : {"v.nii", "v.nii.gz"}) {
    const NiftiFile file(folder_ / name);
    ASSERT_EQ(file.header().extensions.size(), 2U);
    EXPECT_EQ(file.header().extensions[1].code, 4);
    const std::vector<std::byte> content = file.extension(file.header().extensions[0]);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(content.data())), "a comment");
    EXPECT_EQ(read<std::int16_t>(file), values);
  }
}

TEST_F(NiftiTest, HostileHeadersAreRefusedWithAReason) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::string good = NiftiMaker{.dim = {2, 2}}.file(ramp(4));
  const auto with = [&]<class T>(std::size_t at, T value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  struct Case {
    std::string file;
    const char* reason;
  };
  const Case cases[] = {
      {"", "not a NIfTI file, or cut off: 0 bytes"},
      {"x", "not a NIfTI file, or cut off: 1 bytes"},
      {with(0, 349), "sizeof_hdr is 349, expected 348 or 540"},
      {with(0, 540).substr(0, 400), "a NIfTI-2 header has 540"},
      {with(344, '\0'), "the magic is \"\", expected \"n+1\" or \"ni1\""},
      {with(345, '-'), "the magic is \"n-1\""},
      {with(0, 540) + std::string(200, '\0'), "expected \"n+2\" or \"ni2\""},
      {with(40, std::int16_t{0}), "dim[0] is 0, expected 1 to 7"},
      {with(40, std::int16_t{8}), "dim[0] is 8, expected 1 to 7"},
      {with(40, std::int16_t{-1}), "dim[0] is -1, expected 1 to 7"},
      {with(42, std::int16_t{0}), "dim[1] is 0, expected at least 1"},
      {with(44, std::int16_t{-5}), "dim[2] is -5, expected at least 1"},
      {with(42, std::int16_t{32767}), "end at byte 131420, but the file has only 360 bytes: it was cut off"},
      {with(108, kNan), "vox_offset is nan, expected a whole number of at least 352"},
      {with(108, kInf), "vox_offset is inf"},
      {with(108, -352.0F), "vox_offset is -352"},
      {with(108, 348.0F), "vox_offset is 348"},
      {with(108, 352.5F), "vox_offset is 352.5"},
      {with(108, 3e38F), "vox_offset is 3e+38"},
      {with(108, 361.0F), "end at byte 369, but the file has only 360 bytes"},
      {with(108, 1e14F), "it was cut off"},
      {with(70, std::int16_t{0}), "datatype 0 is not supported"},
      {with(70, std::int16_t{128}), "datatype 128"},
      {with(70, std::int16_t{1536}), "datatype 1536"},
      {with(70, std::int16_t{-4}), "datatype -4"},
      {with(72, std::int16_t{8}), "bitpix is 8, expected 16 for i16"},
      {with(116, kInf), "scl_slope is 1, but scl_inter is not finite"},
      {good.substr(0, 359), "end at byte 360, but the file has only 359 bytes: it was cut off"},
  };
  for (const Case& c : cases) {
    put(path_, c.file);
    EXPECT_THAT(refusal(path_), HasSubstr(c.reason));
  }
  std::string bomb = NiftiMaker{.dim = {2}, .extensions = {{6, "text"}}}.file(ramp(2));
  for (const std::int32_t size : {-8, 7, 17, std::numeric_limits<std::int32_t>::max()}) {
    std::memcpy(bomb.data() + 352, &size, sizeof size);
    put(path_, bomb);
    EXPECT_THAT(refusal(path_),
                HasSubstr("the extension at byte 352 announces " + std::to_string(size) + " bytes, but only 16 remain"));
  }
  std::string shapes = NiftiMaker{.version = 2, .dim = {2, 2}}.file(ramp(4));
  const std::int64_t huge = std::int64_t{1} << 62;
  std::memcpy(shapes.data() + 24, &huge, sizeof huge);
  put(path_, shapes);
  EXPECT_THAT(refusal(path_), HasSubstr("a volume of [2,4611686018427387904] is larger than any file"));
}

TEST_F(NiftiTest, PackedFilesThatLieAreRefused) {
  const stdfs::path packed = folder_ / "v.nii.gz";
  const std::string whole = NiftiMaker{.dim = {40, 50}}.file(ramp(2000));
  const std::string good = gzip(whole);
  put(packed, good);
  EXPECT_EQ(refusal(packed), "accepted");
  for (std::size_t size = 0; size < good.size(); ++size) {
    put(packed, good.substr(0, size));
    ASSERT_NE(refusal(packed), "accepted") << size;
  }
  std::string wrong_crc = good;
  wrong_crc[good.size() - 5] = static_cast<char>(wrong_crc[good.size() - 5] ^ 1);
  put(packed, wrong_crc);
  EXPECT_EQ(refusal(packed), "the compressed data is damaged or cut off");
  put(packed, whole);
  EXPECT_EQ(refusal(packed), "the file is named .gz, but holds no gzip data");
  // A little padding after the voxels is ignored; a zip bomb is inflated no further than that.
  put(packed, gzip(whole + "x"));
  EXPECT_EQ(refusal(packed), "accepted");
  put(packed, gzip(whole + std::string(20'000'000, '\0')));
  EXPECT_EQ(refusal(packed), "the compressed data holds more than the 4352 bytes that are announced");
  // The last byte of the voxels is missing.
  put(packed, gzip(whole.substr(0, whole.size() - 1)));
  EXPECT_EQ(refusal(packed), "the compressed data holds less than the 4352 bytes that are announced");
  const NiftiMaker vast{.dim = {30000, 30000, 1000}};
  put(packed, gzip(vast.header()));
  EXPECT_THAT(refusal(packed), HasSubstr("the file can't hold more than"));
  put(packed, gzip(whole.substr(0, 100)));
  EXPECT_THAT(refusal(packed), HasSubstr("not a NIfTI file, or cut off: 100 bytes"));
  put(packed, "\x1F\x8B nonsense");
  EXPECT_EQ(refusal(packed), "the compressed data is damaged or cut off");
}

TEST_F(NiftiTest, MembersOfOneFileAreJoined) {
  const std::vector<std::int16_t> values = ramp(2000);
  const std::string whole = NiftiMaker{.dim = {40, 50}}.file(values);
  put(folder_ / "v.nii.gz", gzip(whole.substr(0, 200)) + gzip(whole.substr(200, 1000)) + gzip(whole.substr(1200)));
  EXPECT_EQ(read<std::int16_t>(NiftiFile(folder_ / "v.nii.gz")), values);
}

TEST_F(NiftiTest, ThingsThatAreNoFilesAreRefused) {
  EXPECT_THAT(refusal(folder_), HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal(folder_ / "none.nii"), HasSubstr("can't be opened"));
  stdfs::create_symlink("loop.nii", folder_ / "loop.nii");
  EXPECT_THAT(refusal(folder_ / "loop.nii"), HasSubstr("can't be opened"));
}

TEST_F(NiftiTest, AFileThatShrinksIsNoticed) {
  put(path_, NiftiMaker{.dim = {2, 2}}.file(ramp(4)));
  const NiftiFile file(path_);
  stdfs::resize_file(path_, 355);
  std::vector<std::byte> out(8);
  EXPECT_THROW(file.read(out), DataError);
}

}  // namespace
}  // namespace millrace::data
