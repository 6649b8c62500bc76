#include "recipes/image_pairs/features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::recipes::image_pairs {
namespace {

// "Pixels" that all have the value of the image's number.
at::Tensor pixels_of(const std::vector<std::int64_t>& ids) {
  std::vector<at::Tensor> images;
  for (const std::int64_t id : ids) images.push_back(at::full({3, 4, 4}, static_cast<double>(id)));
  return at::stack(images);
}

at::Tensor features(FeatureStore& store, const std::vector<std::int64_t>& ids) {
  return store.of(ids, pixels_of(ids), [](const at::Tensor& image) {
    EXPECT_EQ(image.size(0), 1) << "one image at a time";
    return image.select(1, 0).flatten(1).unsqueeze(1) * 2;
  });
}

constexpr std::uint64_t kOne = 16 * sizeof(float);  // bytes of the features of an image

TEST(FeatureStoreTest, AnImageIsLookedAtOnceAndBelongsToItsRow) {
  FeatureStore store(10, 10 * kOne);
  const at::Tensor first = features(store, {3, 1, 3});
  EXPECT_EQ(store.made(), 2);
  EXPECT_EQ(first.select(2, 0).flatten()[0].item<float>(), 6);
  EXPECT_EQ(first.select(2, 0).flatten()[1].item<float>(), 2);
  EXPECT_TRUE(first[0].equal(first[2]));
  (void)features(store, {1, 2, 3});
  EXPECT_EQ(store.made(), 3);
  EXPECT_EQ(store.bytes(), 3 * kOne);
}

TEST(FeatureStoreTest, KeepsWhatFitsAndMakesTheRestAnew) {
  FeatureStore bounded(10, 2 * kOne), nothing(10, 0), all(10, 10 * kOne);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<std::int64_t> ids = {4, 5, 6, 4};
    EXPECT_TRUE(features(bounded, ids).equal(features(all, ids)));
    EXPECT_TRUE(features(nothing, ids).equal(features(all, ids)));
  }
  EXPECT_EQ(bounded.bytes(), 2 * kOne);
  EXPECT_EQ(bounded.made(), 4);
  EXPECT_EQ(nothing.bytes(), 0U);
  EXPECT_EQ(nothing.made(), 6);
  EXPECT_EQ(all.made(), 3);
}

// First four images are missing, then one; each call must still get three.
TEST(FeatureStoreTest, LooksAtAsManyImagesInEachCall) {
  FeatureStore together(10, 10 * kOne, 3), alone(10, 10 * kOne);
  std::vector<std::vector<float>> calls;
  const auto look = [&](const std::vector<std::int64_t>& ids) {
    return together.of(ids, pixels_of(ids), [&](const at::Tensor& images) {
      std::vector<float> numbers;
      for (std::int64_t i = 0; i < images.size(0); ++i) numbers.push_back(images[i].max().item<float>());
      calls.push_back(numbers);
      return images.select(1, 0).flatten(1).unsqueeze(1) * 2;
    });
  };
  for (const std::vector<std::int64_t>& ids : {std::vector<std::int64_t>{3, 1, 3, 2, 5}, {5, 7, 1}, {7, 3}})
    EXPECT_TRUE(look(ids).equal(features(alone, ids)));
  EXPECT_THAT(calls,
              testing::ElementsAre(testing::ElementsAre(3, 1, 2), testing::ElementsAre(5, 5, 5), testing::ElementsAre(7, 7, 7)));
  EXPECT_EQ(together.made(), 5) << "a repeat is not counted";
  EXPECT_EQ(together.bytes(), 5 * kOne);
}

TEST(FeatureStoreTest, ForgetsForAnotherNumberFormat) {
  FeatureStore store(4, 4 * kOne);
  (void)features(store, {0, 1});
  store.forget();
  EXPECT_EQ(store.bytes(), 0U);
  (void)features(store, {0, 1});
  EXPECT_EQ(store.made(), 4);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
