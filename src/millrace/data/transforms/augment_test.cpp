#include "millrace/data/transforms/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/format/png.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

using test::rows_of;
using testing::ElementsAre;
using testing::ElementsAreArray;

using SourcePtr = std::shared_ptr<const Source>;

// A source of one sample whose field "image" counts up.
template <class T>
SourcePtr counting_up(const Shape& shape, T first = {}) {
  std::vector<T> values(static_cast<std::size_t>(*element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(first + static_cast<T>(i));
  return std::make_shared<MemorySource>(std::vector{memory_array("image", shape, std::move(values))});
}

// The values of the first sample after a step, in epoch `epoch`.
template <class T>
std::vector<T> after(const Step& step, const SourcePtr& source, std::uint64_t epoch = 0) {
  return rows_of<T>(*augment(source, {"image"}, {step}), {0}, epoch);
}

TEST(Augment, crops_and_pads_as_numpy_does) {
  const SourcePtr line = counting_up<std::int16_t>({5});  // 0 1 2 3 4
  using Line = std::vector<std::int16_t>;
  EXPECT_EQ(after<std::int16_t>(pad({.margin = {3}, .border = Border::reflect}), line), (Line{3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1}));
  EXPECT_EQ(after<std::int16_t>(pad({.margin = {2}, .value = -7}), line), (Line{-7, -7, 0, 1, 2, 3, 4, -7, -7}));
  EXPECT_EQ(after<std::int16_t>(centre_crop({3}), line), (Line{1, 2, 3}));
  EXPECT_EQ(after<std::int16_t>(centre_crop({2}), line), (Line{1, 2}));
  EXPECT_EQ(after<std::int16_t>(centre_crop({7}, {.margin = {1}}), line), (Line{0, 0, 1, 2, 3, 4, 0}));
  const SourcePtr picture = counting_up<std::uint8_t>({2, 2, 3});
  EXPECT_EQ(augment(picture, {"image"}, {pad({.margin = {1, 1}})})->fields()[0], (Field{"image", DType::u8, {2, 4, 5}}));
  EXPECT_THAT(after<std::uint8_t>(pad({.margin = {1, 1}, .border = Border::reflect}), picture),
              ElementsAre(4, 3, 4, 5, 4, 1, 0, 1, 2, 1, 4, 3, 4, 5, 4, 1, 0, 1, 2, 1,  //
                          10, 9, 10, 11, 10, 7, 6, 7, 8, 7, 10, 9, 10, 11, 10, 7, 6, 7, 8, 7));
}

// Cuts element by element, as the definition says.
std::vector<float> cut_by_hand(const Shape& whole, const Shape& begin, const Shape& size, bool reflects) {
  std::vector<float> out;
  const auto at = [&](std::size_t axis, std::int64_t i) {
    std::int64_t place = begin[axis] + i;
    if (reflects && place < 0) place = -place;
    if (reflects && place >= whole[axis]) place = 2 * whole[axis] - 2 - place;
    return place >= 0 && place < whole[axis] ? place : -1;
  };
  for (std::int64_t c = 0; c < whole[0]; ++c) {
    for (std::int64_t z = 0; z < size[1]; ++z) {
      for (std::int64_t y = 0; y < size[2]; ++y) {
        for (std::int64_t x = 0; x < size[3]; ++x) {
          const bool inside = at(1, z) >= 0 && at(2, y) >= 0 && at(3, x) >= 0;
          const std::int64_t place = ((c * whole[1] + at(1, z)) * whole[2] + at(2, y)) * whole[3] + at(3, x);
          out.push_back(inside ? static_cast<float>(place) : -5.0F);
        }
      }
    }
  }
  return out;
}

TEST(Augment, random_crops_of_volumes_are_parts_of_them_and_each_place_comes) {
  const Shape whole{2, 4, 3, 5};
  const SourcePtr volume = counting_up<float>(whole);
  for (const Border border : {Border::constant, Border::reflect}) {
    const Step step = random_crop({3, 4, 2}, {.margin = {1, 2, 1}, .border = border, .value = -5});
    std::set<std::vector<float>> left;
    for (std::int64_t z = -1; z <= 2; ++z) {
      for (std::int64_t y = -2; y <= 1; ++y) {
        for (std::int64_t x = -1; x <= 4; ++x)
          left.insert(cut_by_hand(whole, {0, z, y, x}, {0, 3, 4, 2}, border == Border::reflect));
      }
    }
    ASSERT_EQ(left.size(), 4 * 4 * 6U);
    const std::set<std::vector<float>> all = left;
    for (std::uint64_t epoch = 0; epoch < 1500; ++epoch) {
      const std::vector<float> crop = after<float>(step, volume, epoch);
      ASSERT_TRUE(all.contains(crop)) << "epoch " << epoch;
      left.erase(crop);
    }
    EXPECT_TRUE(left.empty());
  }
}

TEST(Augment, flips_reverse_the_axes_that_are_drawn) {
  const SourcePtr volume = counting_up<std::uint8_t>({1, 2, 2, 3});
  EXPECT_THAT(after<std::uint8_t>(random_flip({-1}, 1), volume), ElementsAre(2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9));
  EXPECT_THAT(after<std::uint8_t>(random_flip({-2}, 1), volume), ElementsAre(3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8));
  EXPECT_THAT(after<std::uint8_t>(random_flip({-3}, 1), volume), ElementsAre(6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(after<std::uint8_t>(random_flip({-1, -2, -3}, 1), volume), ElementsAre(11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_THAT(after<std::uint8_t>(random_flip({-1, -2, -3}, 0), volume), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  std::map<std::vector<std::uint8_t>, int> counts;
  for (std::uint64_t epoch = 0; epoch < 800; ++epoch) ++counts[after<std::uint8_t>(random_flip({-1, -2}), volume, epoch)];
  ASSERT_EQ(counts.size(), 4U) << "each axis by a draw of its own";
  for (const auto& [values, count] : counts) EXPECT_THAT(count, testing::AllOf(testing::Gt(140), testing::Lt(260)));
  const std::vector<double> doubles = after<double>(random_flip({-1}, 1), counting_up<double>({4}));
  EXPECT_THAT(doubles, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(after<std::complex<double>>(random_flip({-1}, 1), counting_up<std::complex<double>>({2}, 4.0))[0], 5.0);
}

TEST(Augment, rolls_move_what_leaves_to_the_other_end) {
  const SourcePtr line = counting_up<std::int32_t>({5});
  std::set<std::vector<std::int32_t>> seen;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    std::vector<std::int32_t> rolled = after<std::int32_t>(random_roll({-1}), line, epoch);
    seen.insert(rolled);
    std::rotate(rolled.begin(), std::find(rolled.begin(), rolled.end(), 0), rolled.end());
    EXPECT_THAT(rolled, ElementsAre(0, 1, 2, 3, 4));
  }
  EXPECT_EQ(seen.size(), 5U);
  std::set<std::vector<std::int32_t>> planes;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch)
    planes.insert(after<std::int32_t>(random_roll({-1, -2}), counting_up<std::int32_t>({2, 3}), epoch));
  EXPECT_EQ(planes.size(), 6U);
}

TEST(Augment, normalises_bytes_and_floats_by_channel) {
  const SourcePtr bytes = counting_up<std::uint8_t>({2, 1, 2}, 100);
  EXPECT_EQ(augment(bytes, {"image"}, {normalise({0}, {1})})->fields()[0], (Field{"image", DType::f32, {2, 1, 2}}));
  EXPECT_THAT(after<float>(normalise({0.5F, 0.25F}, {0.5F, 2}), bytes),
              ElementsAre((100 / 255.0F - 0.5F) / 0.5F, (101 / 255.0F - 0.5F) / 0.5F, (102 / 255.0F - 0.25F) / 2,
                          (103 / 255.0F - 0.25F) / 2));
  EXPECT_THAT(after<float>(normalise({1}, {4}), counting_up<float>({3})), ElementsAre(-0.25F, 0, 0.25F));
}

// normalise() and ImageSource use the same code, so both must give the same bits.
TEST(Augment, normalises_as_the_source_of_pictures_does) {
  const auto folder = std::filesystem::temp_directory_path() / ("millrace-augment-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::vector<std::byte> pixels(256);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i);
  const std::string png = test::text_of(format::encode_png({16, 16, Pixels::gray}, pixels));
  std::ofstream(folder / "all.png", std::ios::binary) << png;
  ImageSamples samples{.height = 16, .width = 16, .pixels = Pixels::gray, .random_crop = false};
  samples.mean[0] = 0.4F;
  samples.deviation[0] = 0.3F;
  const ImageSource images({folder / "all.png"}, samples);
  EXPECT_EQ(rows_of<float>(images, {0}), after<float>(normalise({0.4F}, {0.3F}), counting_up<std::uint8_t>({1, 16, 16})));
  std::filesystem::remove_all(folder);
}

TEST(Augment, noise_is_normal_and_new_each_time) {
  const SourcePtr zeros =
      std::make_shared<MemorySource>(std::vector{memory_array("image", {40001}, std::vector<float>(std::size_t{2} * 40001))});
  const SourcePtr noisy = augment(zeros, {"image"}, {gaussian_noise(0.5)});
  const std::vector<float> noise = rows_of<float>(*noisy, {0});
  const double count = static_cast<double>(noise.size());
  double moments[5] = {};
  for (const float value : noise) {
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(value / 0.5, power) / count;
  }
  EXPECT_NEAR(moments[1], 0, 5 / std::sqrt(count));  // each within five standard errors
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15 / count));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96 / count));
  double pairs = 0;
  for (std::size_t i = 1; i < noise.size(); ++i) pairs += noise[i] * noise[i - 1] / 0.25 / count;
  EXPECT_NEAR(pairs, 0, 5 / std::sqrt(count));
  EXPECT_EQ(rows_of<float>(*noisy, {0}), noise);
  EXPECT_NE(rows_of<float>(*noisy, {0}, 1), noise);
  EXPECT_NE(rows_of<float>(*noisy, {1, 0})[40001], noise[0]) << "another position";
}

TEST(Augment, a_picture_and_its_mask_are_cut_and_flipped_alike) {
  std::vector<float> image(72);
  std::vector<std::int64_t> mask(36);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    mask[i] = static_cast<std::int64_t>(i) + 1;
    image[i] = static_cast<float>(i + 1);
    image[36 + i] = image[i] + 100;
  }
  const SourcePtr both = std::make_shared<MemorySource>(
      std::vector{memory_array("image", {2, 6, 6}, std::move(image)), memory_array("mask", {6, 6}, std::move(mask))});
  const SourcePtr alike =
      augment(both, {"image", "mask"}, {random_flip({-1, -2}), random_crop({4, 4}, {.margin = {1, 1}}), random_flip({-1})});
  const SourcePtr noisy = augment(alike, {"image"}, {gaussian_noise(0)});
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    const std::vector<float> cut = rows_of<float>(*noisy, {0}, epoch, 0);
    const std::vector<std::int64_t> label = rows_of<std::int64_t>(*noisy, {0}, epoch, 1);
    EXPECT_THAT(label, ElementsAreArray(cut.begin(), cut.begin() + 16));
  }
}

TEST(Augment, streams_are_equal_with_the_cache_off_and_on_for_any_readers) {
  class Stored final : public Source {  // stands for a source of files
   public:
    [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
    [[nodiscard]] std::int64_t size() const override { return 37; }
    [[nodiscard]] std::string fingerprint() const override { return "stored"; }
    [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
    void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const override {
      for (std::size_t i = 0; i < indices.size(); ++i) {
        for (std::size_t b = 0; b < 75; ++b)
          rows.row(0, i, 75)[b] = static_cast<std::byte>(7 * indices[i] + static_cast<std::int64_t>(b));
        std::memcpy(rows.row(1, i, 8), &indices[i], 8);
      }
    }

   private:
    std::vector<Field> fields_ = {{"image", DType::u8, {3, 5, 5}}, {"label", DType::i64, {}}};
  };
  const auto make = [] {
    return augment(std::make_shared<Stored>(), {"image"},
                   {random_flip({-2}), random_crop({4, 4}, {.margin = {2, 2}, .border = Border::reflect}), random_flip({-1}),
                    normalise({0.5F, 0.4F, 0.3F}, {0.2F, 0.3F, 0.4F}), gaussian_noise(0.1)});
  };
  const auto stream = [&](int readers, std::uint64_t budget) {
    Pipeline pipeline = single(make());
    if (budget > 0) use_cache(pipeline, std::make_shared<SampleCache>(budget));
    LoaderOptions options;
    options.batch_size = 5;
    options.shuffle = true;
    options.seed = 3;
    options.readers = readers;
    Loader loader(pipeline, options);
    std::string bytes;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const test::Delivered& batch : test::epoch_of(loader)) bytes += batch.bytes;
    }
    return bytes;
  };
  const std::string expected = stream(0, 0);
  ASSERT_EQ(expected.size(), 2U * 37 * (48 * 4 + 8));
  EXPECT_NE(expected.substr(0, expected.size() / 2), expected.substr(expected.size() / 2));
  for (const std::uint64_t budget : {std::uint64_t{0}, cache_payload(*make()), cache_payload(*make()) / 2}) {
    for (const int readers : {0, 1, 2, 3, 8}) EXPECT_EQ(stream(readers, budget), expected) << budget << ", " << readers;
  }
}

TEST(Augment, the_fingerprint_says_the_steps) {
  const SourcePtr picture = counting_up<std::uint8_t>({3, 8, 8});
  EXPECT_THAT(
      augment(picture, {"image"},
              {random_crop({8, 8}, {.margin = {1, 1}, .border = Border::reflect}), random_flip({-1}), centre_crop({4, 4}),
               pad({.margin = {2}, .value = 3}), random_roll({-1}), normalise({0.5F}, {0.25F}), gaussian_noise(0.001)})
          ->fingerprint(),
      testing::StartsWith("map \"augment image: random_crop [8,8] margin [1,1] reflect, random_flip -1 p 0.5, centre_crop "
                          "[4,4], pad margin [2] constant 3, random_roll -1, normalise 0.5/0.25, gaussian_noise "
                          "1e-03\" to image f32[3,4,8] of (memory "));
}

TEST(Augment, mistakes_are_named_when_the_source_is_made) {
  const SourcePtr picture = counting_up<std::uint8_t>({3, 8, 8});
  const auto refused = [&](const std::function<Step()>& step) {
    return refusal_message<ConfigError>([&] { (void)augment(picture, {"image"}, {step()}); });
  };
  const Message large = refused([] { return random_crop({9, 8}); });
  EXPECT_EQ(large.what, "field \"image\" u8 [3,8,8] is smaller than the part");
  EXPECT_EQ(large.where, "random_crop [9,8]");
  EXPECT_EQ(large.next, "take a smaller part or wider margins");
  EXPECT_EQ(refused([] { return pad({.margin = {8}, .border = Border::reflect}); }).what,
            "field \"image\" u8 [3,8,8] can't be mirrored by 8 elements");
  EXPECT_EQ(refused([] { return pad({.margin = {1}, .value = 0.5}); }).what,
            "field \"image\" u8 [3,8,8] can't hold the value 0.5");
  EXPECT_EQ(refused([] { return random_crop({1, 1, 1, 1}); }).what, "field \"image\" u8 [3,8,8] has fewer than 4 axes");
  EXPECT_EQ(refused([] { return random_crop({8, 8}, {.margin = {1}}); }).what, "a step can't have sizes [8,8] and margins [1]");
  EXPECT_EQ(refused([] { return random_crop({0}); }).what, "a step can't have sizes [0] and margins [0]");
  EXPECT_EQ(refused([] { return random_flip({1}); }).what,
            "field \"image\" u8 [3,8,8] has no axis 1, or the axis is given twice");
  EXPECT_EQ(refused([] {
              return random_flip({-1, -1});
            }).what,
            "field \"image\" u8 [3,8,8] has no axis -1, or the axis is given twice");
  EXPECT_EQ(refused([] { return random_flip({-1}, 1.5); }).what, "the probability is 1.5");
  EXPECT_EQ(refused([] {
              return normalise({0, 0}, {1, 1});
            }).what,
            "field \"image\" u8 [3,8,8] does not have 2 channels on its first axis");
  EXPECT_EQ(refused([] { return normalise({0}, {0}); }).what, "1 means and 1 deviations are given; a deviation is not above 0");
  EXPECT_EQ(refused([] { return gaussian_noise(1); }).what, "field \"image\" u8 [3,8,8] is not f32");
  EXPECT_EQ(refused([] { return gaussian_noise(-1); }).what, "the deviation is -1");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)augment(picture, {"imge"}, {random_flip({-1})}); }).what,
            "the sample has no field \"imge\"");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)augment(picture, {}, {random_flip({-1})}); }).what, "no field is named");
  EXPECT_EQ(refusal_message<ConfigError>([&] { (void)augment(picture, {"image"}, {}); }).what, "a step is missing");
}

}  // namespace
}  // namespace millrace::data
