#include "recipes/autoencoder_3d/volume_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/cache/disk_cache.h"
#include "millrace/data/loader/loader.h"
#include "recipes/autoencoder_3d/detail/test_volumes.h"
#include "recipes/autoencoder_3d/scaling.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class VolumeSourceTest : public VolumeTest {};

TEST_F(VolumeSourceTest, OneVolumeIsImageAndLabel) {
  const auto values = counted<float>(6 * 6 * 6);
  write("a.nii", Nifti{.dim = {6, 6, 6}}.file(values));
  write("b.nii", Nifti{.dim = {6, 6, 6, 1}}.file(values));
  recipe_.target = Target::label;
  const VolumeFiles files = open();
  EXPECT_THAT(files.notices, ElementsAre("2 files with one volume, which serves as image and as label, the first: \"a.nii\""));
  const auto source = volume_source(files.train, Split::train, recipe_);
  ASSERT_EQ(source->fields().size(), 2U);
  EXPECT_EQ(source->fields()[1], (Field{"label", DType::f32, {1, 4, 4, 4}}));
  EXPECT_EQ(read(*source, {0, 1}, 0), read(*source, {0, 1}, 1));
  EXPECT_EQ(source->part_bytes(1), 216U * 4) << "kept once";
}

TEST_F(VolumeSourceTest, ACropIsOneForBothKeysAndAnotherEachTime) {
  pair("a.npz", {9, 8, 7});
  recipe_.target = Target::label;
  const auto source = volume_source(open().train, Split::train, recipe_);
  std::set<float> corners;
  for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
    const std::vector<float> image = read(*source, {0}, 0, epoch);
    const std::vector<float> label = read(*source, {0}, 1, epoch);
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(label[i], image[i] + 504);
      ASSERT_EQ(image[i], image[0] + static_cast<float>(i / 16 * 56 + i / 4 % 4 * 7 + i % 4));
    }
    corners.insert(image[0]);
  }
  EXPECT_GT(corners.size(), 30U) << "of 6 * 5 * 4 places";
  EXPECT_EQ(read(*source, {0}, 0, 3), read(*source, {0}, 0, 3));
  recipe_.target = Target::image;
  EXPECT_EQ(volume_source(open().train, Split::train, recipe_)->fields().size(), 1U) << "the label is not read";
}

TEST_F(VolumeSourceTest, SmallVolumesEndInZeros) {
  pair("a.npz", {3, 8, 2}, 5);
  const VolumeFiles files = open();
  EXPECT_THAT(files.notices, ElementsAre("1 file smaller than the crop [4,4,4], padded with zeros: \"a.npz\""));
  const std::vector<float> crop = read(*volume_source(files.train, Split::train, recipe_), {0});
  for (std::size_t i = 0; i < 64; ++i) {
    const bool inside = i / 16 < 3 && i % 4 < 2;
    ASSERT_EQ(crop[i] > 0, inside) << i;
  }
  recipe_.pad_small = false;
  const Message message = refusal_message<DataError>([&] { (void)open(); });
  EXPECT_EQ(message.what, "the volume is [3,8,2], but the crop is [4,4,4]");
  EXPECT_THAT(message.where, HasSubstr("a.npz"));
}

TEST_F(VolumeSourceTest, ValidationIsTheMiddleAtOneSize) {
  recipe_.patch_size = {16, 8, 12};
  pair("train/a.npz", {30, 30, 30});
  pair("val/a.npz", {30, 30, 30});
  EXPECT_EQ(validation_size(open().validation, recipe_), (Shape{24, 12, 20})) << "4 * ceil(1.5 p / 4)";
  pair("val/b.npz", {22, 40, 21});
  const VolumeFiles files = open();
  EXPECT_EQ(files.train.size(), 1U);
  EXPECT_EQ(validation_size(files.validation, recipe_), (Shape{20, 12, 20}));
  EXPECT_THAT(validation_size({}, recipe_), IsEmpty());
  const auto source = volume_source(files.validation, Split::validation, recipe_);
  EXPECT_EQ(read(*source, {0})[0], 5 * 900 + 9 * 30 + 5);
  EXPECT_EQ(read(*source, {0, 1}), read(*source, {0, 1}, 0, 9)) << "nothing is drawn";
}

TEST_F(VolumeSourceTest, AVolumeThatCantBeOpenedGoesByThePolicyForBadSamples) {
  pair("a.npz", {8, 8, 8});
  write("b.npz", "no archive at all");
  pair("c.npz", {8, 8, 8});
  EXPECT_THROW((void)open(), DataError);
  DataConfig input;
  input.bad_samples = data::BadSamples::skip;
  input.max_bad_fraction = 0;
  try {
    (void)open_volumes(recipe_, folder_, 1, input);
    FAIL() << "a limit of 0 allows not one";
  } catch (const DataError& error) {
    EXPECT_THAT(error.message().what,
                testing::StartsWith("1 of 3 volumes can't be used, more than the fraction 0 that is allowed"));
    EXPECT_THAT(error.message().next, testing::HasSubstr("set data.max_bad_fraction to 0.3334, or"));
  }
  input.max_bad_fraction = 0.001;  // less than one sample, but one bad sample is always allowed
  const VolumeFiles files = open_volumes(recipe_, folder_, 1, input);
  ASSERT_EQ(files.train.size(), 3U);
  EXPECT_THAT(files.notices,
              testing::Contains(testing::AllOf(testing::StartsWith("1 of 3 volumes can't be used, the first: "),
                                               testing::EndsWith("their samples are treated as data.bad_samples says: skip"))));
  const auto source = volume_source(files.train, Split::train, recipe_);
  EXPECT_THROW((void)read(*source, {1}), DataError);
  EXPECT_EQ(read(*source, {0}).size(), 64U);
  EXPECT_EQ(read(*source, {2}).size(), 64U);
}

TEST_F(VolumeSourceTest, ASplitIsDrawnFromTheSeed) {
  for (int i = 0; i < 10; ++i) pair("v" + std::to_string(i) + ".npz", {4, 4, 4});
  const auto names = [](const std::vector<VolumeFile>& files) {
    std::vector<std::string> list;
    for (const VolumeFile& file : files) list.push_back(file.path.filename().string());
    return list;
  };
  EXPECT_EQ(open().validation.size(), 0U) << "val_fraction = 0";
  const std::vector<std::string> everything = names(open().train);
  for (const auto& [fraction, count] : {std::pair(0.01, 1U), {0.26, 3U}, {0.99, 9U}}) {
    recipe_.val_fraction = fraction;
    const VolumeFiles files = open();
    EXPECT_EQ(files.validation.size(), count);
    std::vector<std::string> all = names(files.train);
    for (const std::string& name : names(files.validation)) all.push_back(name);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, everything);
    EXPECT_EQ(names(open().validation), names(files.validation));
  }
  recipe_.val_fraction = 0.3;
  std::set<std::vector<std::string>> drawn;
  for (std::uint64_t seed = 0; seed < 20; ++seed) drawn.insert(names(open(seed).validation));
  EXPECT_GT(drawn.size(), 10U);
  stdfs::create_directories(folder_ / "one");
  pair("one/a.npz", {4, 4, 4});
  recipe_.train_dir = (folder_ / "one").string();
  EXPECT_THAT(open().notices,
              ElementsAre("there is only one file, so the run has no validation: put another file into recipe.val_dir"));
  recipe_.val_dir = folder_.string();
  EXPECT_EQ(open().validation.size(), 10U);
}

TEST_F(VolumeSourceTest, AnotherVoxelSizeIsTold) {
  recipe_.spacing = {5, 3.2, 3.2};
  const auto values = counted<float>(64);
  write("a.nii", Nifti{.dim = {4, 4, 4, 1}, .voxel = {3.2F, 3.2F, 5}}.file(values));
  EXPECT_EQ(open().notices.size(), 1U) << "that it is one volume";
  write("b.nii", Nifti{.dim = {4, 4, 4}, .voxel = {2, 2, 5}}.file(values));
  write("c.nii", Nifti{.dim = {4, 4, 4}, .voxel = {1, 2, 5}}.file(values));
  pair("d.npz", {4, 4, 4});
  EXPECT_EQ(
      open().notices.back(),
      "2 files with voxels of another size than recipe.spacing ([5.0,2.0,2.0] mm; nothing is resampled), the first: \"b.nii\"");
}

TEST_F(VolumeSourceTest, RangesOfWholeVolumesAreThoseOfTheirTensor) {
  auto values = counted<float>(2 * 8 * 9 * 10, 977);
  npz("a.npz", DType::f32, {2, 8, 9, 10}, values);
  write("b.nii", Nifti{.dim = {10, 9, 8, 2}, .slope = 0.25F, .intercept = 1}.file(counted<std::int16_t>(1440)));
  recipe_.target = Target::label;
  recipe_.scale_on = ScaleOn::volume;
  const auto source = volume_source(open().train, Split::train, recipe_);
  ASSERT_EQ(source->fields()[2], (Field{"range", DType::f32, {2, 2}}));
  const std::vector<float> got = read(*source, {0, 1}, 2);
  for (std::size_t file = 0; file < 2; ++file) {
    for (std::size_t key = 0; key < 2; ++key) {
      std::vector<float> volume = whole(folder_ / (file == 0 ? "a.npz" : "b.nii"), key);
      std::sort(volume.begin(), volume.end());
      const Quantile place = upper_place(720);
      EXPECT_EQ(got[file * 4 + key * 2], volume[0]);
      const auto below = static_cast<std::size_t>(place.below);
      EXPECT_NEAR(got[file * 4 + key * 2 + 1],
                  volume[below] + place.weight * static_cast<double>(volume[below + 1] - volume[below]), 1e-3);
    }
  }
}

// The bytes of all fields in all batches.
std::vector<std::string> stream_of(const std::shared_ptr<const data::Source>& source, int readers, int epochs, int from = 0) {
  data::LoaderOptions options;
  options.batch_size = 2;
  options.shuffle = true;
  options.seed = 3;
  options.readers = readers;
  data::Loader loader(data::single(source), options);
  std::vector<std::string> stream;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    while (auto batch = loader.next()) {
      std::string& bytes = stream.emplace_back();
      const data::HostBatch::Group& group = batch->groups[0];
      for (std::size_t f = 0; f < group.fields.size(); ++f)
        bytes.append(reinterpret_cast<const char*>(group.data[f]), group.fields[f].bytes() * group.positions.size());
    }
  }
  stream.erase(stream.begin(), stream.begin() + from);
  return stream;
}

TEST_F(VolumeSourceTest, CachesInMemoryAndOnDiskChangeNothing) {
  pair("a.npz", {40, 9, 12});
  pair("b.npz", {4, 4, 4}, 7);
  npz("c.npz", DType::u8, {2, 64, 33, 40}, counted<std::uint8_t>(std::size_t{2} * 64 * 33 * 40, 251));
  write("d.nii.gz", gz(Nifti{.dim = {48, 40, 30}, .slope = 2, .intercept = 1}.file(counted<std::int16_t>(57600))));
  write("e.nii.gz", gz(Nifti{.dim = {10, 70, 30, 2}}.file(counted<float>(42000))));
  recipe_.patch_size = {8, 4, 8};
  for (const Target target : {Target::image, Target::label}) {
    for (const ScaleOn scale : {ScaleOn::crop, ScaleOn::volume}) {
      recipe_.target = target;
      recipe_.scale_on = scale;
      const auto source = [&] { return volume_source(open().train, Split::train, recipe_); };
      const auto expected = stream_of(source(), 0, 3);
      const std::uint64_t payload = data::cache_payload(*source());
      for (const int readers : {0, 1, 2}) {
        EXPECT_EQ(stream_of(source(), readers, 3), expected);
        for (const std::uint64_t budget : {payload, payload / 2}) {
          const auto ram = std::make_shared<data::CachedSource>(source(), std::make_shared<data::SampleCache>(budget));
          EXPECT_EQ(stream_of(ram, readers, 3), expected) << readers << " readers";
        }
        for (int run = 0; run < 2; ++run) {
          const auto cache = std::make_shared<data::DiskCache>(data::DiskCache::Options{.folder = folder_ / "parts"});
          EXPECT_EQ(stream_of(std::make_shared<data::DiskCachedSource>(source(), cache), readers, 3), expected)
              << readers << " readers, run " << run;
        }
      }
    }
  }
}

// Runs with other patches and splits must cut their crops from the same cached parts.
TEST_F(VolumeSourceTest, RunsOfOtherPatchesAndSplitsShareDecodedFiles) {
  for (int i = 0; i < 6; ++i) pair("v" + std::to_string(i) + ".npz", {20, 20, 20}, i);
  const std::vector<std::string> texts = volume_source(open().train, Split::train, recipe_)->part_texts();
  ASSERT_EQ(texts.size(), 6U);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 6U);
  recipe_.patch_size = {8, 8, 8};
  recipe_.val_fraction = 0.5;
  const VolumeFiles files = open(4);
  for (const auto& [list, split] : {std::pair(files.train, Split::train), {files.validation, Split::validation}}) {
    for (const std::string& text : volume_source(list, split, recipe_)->part_texts()) EXPECT_THAT(texts, testing::Contains(text));
  }
  recipe_.target = Target::label;
  for (const std::string& text : volume_source(files.train, Split::train, recipe_)->part_texts())
    EXPECT_THAT(texts, testing::Not(testing::Contains(text))) << "two volumes of each";
}

// Uses the volumes in ../shared if they are present: an i16 pair and a scaled u8 volume.
TEST_F(VolumeSourceTest, RealVolumesAreCutAndScaled) {
  const stdfs::path real = stdfs::path(MILLRACE_SOURCE_DIR) / "../shared/data/volumes";
  if (!stdfs::exists(real / "example4d.nii.gz")) GTEST_SKIP() << "no " << real;
  recipe_.train_dir = real.string();
  recipe_.patch_size = {16, 32, 32};
  const VolumeFiles files = open();
  ASSERT_EQ(files.train.size(), 2U);
  EXPECT_EQ(files.train[0].shape, (Shape{24, 96, 128}));
  EXPECT_EQ(files.train[0].volumes, 2);
  EXPECT_EQ(files.train[1].shape, (Shape{56, 67, 57}));
  EXPECT_EQ(files.train[1].dtype, DType::u8);
  const std::vector<float> crops = read(*volume_source(files.train, Split::train, recipe_), {0, 1});
  EXPECT_TRUE(std::all_of(crops.begin(), crops.end(), [](float value) { return std::isfinite(value); }));
  EXPECT_GE(*std::min_element(crops.begin() + 16384, crops.end()), 6.67F) << "the second file's intercept";
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
