#include "recipes/autoencoder_3d/make_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "millrace/base/json.h"
#include "millrace/format/npy.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

namespace stdfs = std::filesystem;

class SampleVolumesTest : public testing::Test {
 protected:
  SampleVolumesTest()
      : folder_(stdfs::path(testing::TempDir()) /
                ("volumes-" + std::to_string(::getpid()) + "-" + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    stdfs::create_directories(folder_);
  }
  ~SampleVolumesTest() override { stdfs::remove_all(folder_); }
  static std::vector<float> pair_in(const stdfs::path& path, std::int64_t side) {
    const format::NpzFile file(path);
    const format::NpzEntry* entry = file.find("arr_0");
    if (entry == nullptr || entry->layout.shape != Shape{2, side, side, side} || entry->layout.dtype != DType::f32) {
      ADD_FAILURE() << path;
      return {};
    }
    std::vector<float> values(static_cast<std::size_t>(2 * side * side * side));
    file.read(*entry, std::as_writable_bytes(std::span(values)));
    return values;
  }
  static std::string text_of(const stdfs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  stdfs::path folder_;
};

TEST_F(SampleVolumesTest, CountsAreThoseOfTheirMeans) {
  const SampleVolumes size = *sample_volumes_of("smoke");
  write_sample_volumes(size, folder_, 5);
  double low = 0;
  double high = 0;
  double squares = 0;
  std::size_t voxels = 0;
  std::size_t files = 0;
  for (const char* part : {"train", "val"}) {
    for (const auto& entry : stdfs::directory_iterator(folder_ / part)) {
      const std::vector<float> pair = pair_in(entry.path(), size.side);
      const std::size_t half = pair.size() / 2;
      for (std::size_t i = 0; i < half; ++i) {
        const double l = pair[i];
        const double h = pair[half + i];
        ASSERT_TRUE(h >= 0 && h <= 1);
        ASSERT_NEAR(l * kCountsPerUnit, std::round(l * kCountsPerUnit), 1e-5) << "whole counts";
        low += l;
        high += h;
        squares += (l - h) * (l - h);
      }
      voxels += half;
      ++files;
    }
  }
  EXPECT_EQ(files, 20U);
  EXPECT_NEAR(low / high, 1, 0.01);
  EXPECT_NEAR(kCountsPerUnit * squares / high, 1, 0.05);
  EXPECT_GT(high / static_cast<double>(voxels), 0.01) << "not empty";
  const Json truth = Json::parse(text_of(folder_ / "truth.json"));
  EXPECT_EQ(truth.at("q"), 40);
  EXPECT_EQ(truth.at("seed"), 5);
  EXPECT_NEAR(truth.at("mean_low").get<double>(), low / static_cast<double>(voxels), 1e-9);
  EXPECT_NEAR(truth.at("mean_high").get<double>(), high / static_cast<double>(voxels), 1e-9);
  EXPECT_NEAR(truth.at("mean_squared_error").get<double>(), squares / static_cast<double>(voxels), 1e-9);
}

TEST_F(SampleVolumesTest, BytesAreAFunctionOfTheSeedAlone) {
  const SampleVolumes size{.side = 12, .train = 3, .validation = 2, .patch = 8};
  for (const char* run : {"a", "b"}) {
    stdfs::create_directories(folder_ / run);
    write_sample_volumes(size, folder_ / run, 9);
  }
  for (const char* file : {"train/v000.npz", "train/v002.npz", "val/v001.npz", "truth.json"})
    EXPECT_EQ(text_of(folder_ / "a" / file), text_of(folder_ / "b" / file)) << file;
  EXPECT_EQ(pair_in(folder_ / "a" / "val" / "v000.npz", 12), sample_pair(12, 9, 3)) << "as one thread makes it";
  EXPECT_NE(sample_pair(12, 9, 0), sample_pair(12, 9, 1));
  EXPECT_NE(sample_pair(12, 9, 0), sample_pair(12, 10, 0));
}

TEST_F(SampleVolumesTest, PresetsHaveTheirSizes) {
  EXPECT_FALSE(sample_volumes_of("tiny"));
  EXPECT_EQ(sample_volumes_of("small")->side, 48);
  for (const char* preset : {"full", "stable", "32g", "multigpu", "optimized"}) EXPECT_EQ(sample_volumes_of(preset)->side, 96);
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
