// Files that the library's own calls or other programs make, which our writer does not.
#include <gmock/gmock.h>
#include <unistd.h>

#include <complex>
#include <filesystem>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/hdf5/child/made_by_library.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {
namespace {

class LibraryFiles : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / ("library_files" + std::to_string(::getpid()) + ".h5");
};

TEST_F(LibraryFiles, BitshuffleIsUndone) {
  // 5,003 values: blocks, a shorter last one, and three that fill no eight.
  std::vector<float> values(5003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 977) * 0.37F - 100;
  for (const unsigned packing : {0U, 2U, 3U}) {
    for (const unsigned block : {0U, 64U}) {
      made::write_bitshuffled(path_, values, 5003, 1, block, packing);
      const auto file = File::open(path_);
      EXPECT_THAT(file->filters("/g/a"), testing::ElementsAre("bitshuffle"));
      std::vector<float> read(values.size());
      file->read("/g/a", Shape{0, 0}, Shape{5003, 1}, std::as_writable_bytes(std::span(read)));
      EXPECT_EQ(read, values) << packing << " " << block;
      std::vector<float> part(7);
      file->read("/g/a", Shape{4996, 0}, Shape{7, 1}, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, std::vector<float>(values.end() - 7, values.end()));
    }
  }
}

TEST_F(LibraryFiles, PairsOfIntegersAreComplexNumbers) {
  const std::array<std::int32_t, 4> wide{2'147'483'647, -2'147'483'647, 16'777'217, 3};
  made::write_integer_pairs(path_, H5T_STD_I32LE, wide.data(), 2);
  auto file = File::open(path_);
  EXPECT_EQ(file->dataset("/a").dtype, DType::c128);
  std::array<std::complex<double>, 2> doubles;
  file->read("/a", Shape{0}, Shape{2}, std::as_writable_bytes(std::span(doubles)));
  EXPECT_EQ(doubles[0], std::complex<double>(2'147'483'647, -2'147'483'647));
  EXPECT_EQ(doubles[1], std::complex<double>(16'777'217, 3));
  const std::array<std::int16_t, 4> narrow{-32'768, 32'767, 1, -1};
  made::write_integer_pairs(path_, H5T_STD_I16LE, narrow.data(), 2);
  file = File::open(path_);
  EXPECT_EQ(file->dataset("/a").dtype, DType::c64);
  std::array<std::complex<float>, 2> floats;
  file->read("/a", Shape{0}, Shape{2}, std::as_writable_bytes(std::span(floats)));
  EXPECT_EQ(floats[0], std::complex<float>(-32'768, 32'767));
  EXPECT_EQ(floats[1], std::complex<float>(1, -1));
  const std::array<std::int64_t, 2> longest{1, 2};
  made::write_integer_pairs(path_, H5T_STD_I64LE, longest.data(), 1);
  EXPECT_THAT(File::open(path_)->unreadable()[0].reason, testing::HasSubstr("integers of at most 4 bytes"));
}

}  // namespace
}  // namespace millrace::hdf5
