#include "millrace/data/files/nifti_writer.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "millrace/base/error.h"
#include "tests/support/nifti_maker.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using test::NiftiMaker;
using testing::HasSubstr;

class NiftiWriterTest : public testing::Test {
 protected:
  NiftiWriterTest() : folder_(stdfs::temp_directory_path() / ("millrace-nifti-writer-" + std::to_string(::getpid()))) {
    stdfs::create_directories(folder_);
  }
  ~NiftiWriterTest() override { stdfs::remove_all(folder_); }
  static std::string bytes_of(const stdfs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The header that is read from a file that `maker` wrote.
  NiftiHeader header_of(const NiftiMaker& maker) {
    std::int64_t count = 1;
    for (const std::int64_t size : maker.dim) count *= size;
    std::ofstream(folder_ / "made.nii", std::ios::binary)
        << maker.file(std::vector<std::int16_t>(static_cast<std::size_t>(count)));
    return NiftiFile(folder_ / "made.nii").header();
  }
  static void expect_same_place(const NiftiHeader& a, const NiftiHeader& b) {
    EXPECT_EQ(a.affine, b.affine);
    EXPECT_EQ(a.pixdim, b.pixdim);
    EXPECT_EQ(a.qform, b.qform);
    EXPECT_EQ(a.qform_code, b.qform_code);
    EXPECT_EQ(a.sform_code, b.sform_code);
    EXPECT_EQ(a.units, b.units);
  }
  stdfs::path folder_;
};

// A volume with both transforms, which differ from each other and from the default.
NiftiMaker placed() {
  return {.dim = {4, 3, 2},
          .pixdim = {2.2F, 3.3F, 4.4F},
          .qfac = -1,
          .qform = 1,
          .sform = 4,
          .quatern = {0.1F, 0.2F, 0.3F},
          .qoffset = {-10.5F, 20.25F, 30.1F},
          .srow = {1.1F, 0.2F, 0, -90.3F, 0, 2.1F, 0.3F, -126.7F, 0.1F, 0, 3.3F, -72.9F}};
}

TEST_F(NiftiWriterTest, WhatIsWrittenIsReadBack) {
  NiftiHeader header = header_of(placed());
  header.description = std::string(100, 'd');
  header.units = 10;
  const std::vector<std::string> comments = {"{\"a\":1}", "another"};
  std::vector<float> voxels(24);
  for (std::size_t i = 0; i < voxels.size(); ++i) voxels[i] = 0.1F * static_cast<float>(i) - 1;
  for (const DType dtype : {DType::f32, DType::i16, DType::u8, DType::c64}) {
    header.dtype = dtype;
    header.scaled = dtype == DType::i16;
    header.slope = 0.5;
    header.intercept = -3;
    std::vector<std::byte> bytes(24 * size_of(dtype));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
    for (const char* name : {"v.nii", "v.nii.gz"}) {
      write_nifti(Fs::real(), folder_ / name, header, bytes, comments);
      const NiftiFile file(folder_ / name);
      expect_same_place(file.header(), header);
      EXPECT_EQ(file.header().shape, (Shape{2, 3, 4}));
      EXPECT_EQ(file.header().dtype, dtype);
      EXPECT_EQ(file.header().scaled, header.scaled);
      EXPECT_EQ(file.header().intercept, header.scaled ? -3 : 0);
      EXPECT_EQ(file.header().description, std::string(79, 'd'));
      std::vector<std::byte> back(bytes.size());
      file.read(back);
      EXPECT_EQ(back, bytes);
      ASSERT_EQ(file.header().extensions.size(), 2U);
      const std::vector<std::byte> first = file.extension(file.header().extensions[0]);
      EXPECT_EQ(file.header().extensions[0].code, kNiftiComment);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data())), comments[0]);
      const std::string once = bytes_of(folder_ / name);
      write_nifti(Fs::real(), folder_ / name, header, bytes, comments);
      EXPECT_EQ(bytes_of(folder_ / name), once);
    }
  }
}

TEST_F(NiftiWriterTest, RefusesWhatHasNoRoom) {
  const auto refusal = [&](const Shape& shape, const char* name) -> std::string {
    NiftiHeader header;
    header.shape = shape;
    header.dtype = DType::u8;
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    try {
      write_nifti(Fs::real(), folder_ / name, header, std::vector<std::byte>(static_cast<std::size_t>(count)));
    } catch (const DataError& error) {
      EXPECT_FALSE(stdfs::exists(folder_ / name));
      return error.message().what;
    }
    return "written";
  };
  EXPECT_THAT(refusal({1, 32768}, "v.nii"), HasSubstr("[1,32768] does not fit into a NIfTI-1 file"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 1, 1, 1, 1}, "v.nii"), HasSubstr("does not fit into"));
  EXPECT_THAT(refusal({2}, "v.img"), HasSubstr("files with this ending can't be written"));
  EXPECT_THAT(refusal({2}, "v.gz"), HasSubstr("files with this ending can't be written"));
}

using Point = std::array<double, 3>;

Point to_mm(const NiftiHeader& header, const Point& voxel) {
  Point mm{};
  for (std::size_t i = 0; i < 3; ++i) {
    mm[i] = header.affine[i][3];
    for (std::size_t j = 0; j < 3; ++j) mm[i] += header.affine[i][j] * voxel[j];
  }
  return mm;
}

TEST_F(NiftiWriterTest, ACoarserGridStandsWhereTheFinerOneDoes) {
  NiftiMaker only_qform = placed();
  only_qform.sform = 0;
  NiftiMaker none = placed();
  none.sform = none.qform = 0;
  for (const NiftiMaker& maker : {placed(), only_qform, none}) {
    const NiftiHeader fine = header_of(maker);
    const NiftiHeader coarse = with_voxels_of(fine, 4);
    // The centre of coarse voxel n is the centre of the fine voxels 4 n to 4 n + 3.
    for (const double n : {0.0, 1.0, 5.0}) {
      const double at = 4 * n + 1.5;
      const Point a = to_mm(coarse, {n, n, n});
      const Point b = to_mm(fine, {at, at, at});
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(a[i], b[i], 1e-9);
    }
    EXPECT_DOUBLE_EQ(coarse.pixdim[2], 4 * fine.pixdim[2]);
    const NiftiHeader back = with_voxels_of(coarse, 0.25);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(back.affine[i][3], fine.affine[i][3], 1e-9);
    // A written file means the same, also if only its qform is used.
    std::vector<std::byte> voxels(24 * sizeof(std::int16_t));
    NiftiHeader without_sform = coarse;
    if (coarse.qform_code > 0) without_sform.sform_code = 0;
    write_nifti(Fs::real(), folder_ / "coarse.nii", without_sform, voxels);
    const NiftiHeader read = NiftiFile(folder_ / "coarse.nii").header();
    const NiftiHeader turned = [&] {
      NiftiMaker by_qform = maker;
      if (maker.qform > 0) by_qform.sform = 0;
      return header_of(by_qform);
    }();
    const Point a = to_mm(read, {0, 0, 0});
    const Point b = to_mm(turned, {1.5, 1.5, 1.5});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
  }
}

}  // namespace
}  // namespace millrace::data
