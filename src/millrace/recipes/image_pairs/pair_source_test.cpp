#include "millrace/recipes/image_pairs/pair_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/data/cached_source.h"
#include "millrace/format/png.h"
#include "millrace/recipes/image_pairs/pixels.h"

namespace millrace::recipes::image_pairs {
namespace {

using testing::HasSubstr;

class PairSourceTest : public testing::Test {
 protected:
  PairSourceTest() { std::filesystem::create_directories(folder_); }
  ~PairSourceTest() override { std::filesystem::remove_all(folder_); }

  // An image whose every value tells its place, and which image it is.
  std::filesystem::path write(const std::string& name, std::int64_t side, std::uint8_t which,
                              format::Pixels pixels = format::Pixels::rgb) const {
    std::vector<std::byte> values(static_cast<std::size_t>(side * side) * static_cast<std::size_t>(pixels));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::byte((i * 7 + which * 31) % 251);
    format::write_png(Fs::real(), folder_ / name, {.height = side, .width = side, .stored = pixels}, values);
    return folder_ / name;
  }
  static RecipeConfig of_side(std::int64_t side) {
    RecipeConfig recipe;
    recipe.image_size = side;
    return recipe;
  }
  static std::vector<std::byte> sample(const data::Source& source, std::int64_t index) {
    std::vector<std::byte> images(source.fields()[0].bytes()), label(sizeof(std::int64_t));
    const std::array<std::byte*, 2> fields = {images.data(), label.data()};
    const std::vector<std::int64_t> indices = {index};
    source.read(indices, {fields}, data::ReadRandom(1, 0, indices));
    images.insert(images.end(), label.begin(), label.end());
    return images;
  }
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("millrace-pair-source-" + std::to_string(::getpid()));
};

TEST_F(PairSourceTest, ASampleIsTwoImagesAndAnAnswer) {
  PairFiles files;
  for (int i = 0; i < 3; ++i)
    files.images.push_back(
        {.path = write("i" + std::to_string(i) + ".png", 20 + i, static_cast<std::uint8_t>(i)), .name = "", .score = 0});
  files.train = {{2, 0, Answer::second}, {0, 1, Answer::similar}, {2, 1, Answer::first}};
  const RecipeConfig recipe = of_side(16);
  const auto source = pair_source(files, Split::train, recipe);
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(pair_source(files, Split::validation, recipe)->size(), 0);
  EXPECT_EQ(source->fields()[0].shape, (Shape{2, 16, 16, 3}));
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::vector<std::byte> read = sample(*source, i);
    std::vector<std::byte> due;
    for (const std::int64_t image :
         {files.train[static_cast<std::size_t>(i)].first, files.train[static_cast<std::size_t>(i)].second}) {
      const auto pixels = read_image(files.images[static_cast<std::size_t>(image)].path, recipe);
      for (const std::uint8_t value : pixels) due.push_back(std::byte(value));
    }
    EXPECT_TRUE(std::equal(due.begin(), due.end(), read.begin()));
    EXPECT_EQ(read[due.size()], std::byte(static_cast<int>(files.train[static_cast<std::size_t>(i)].label)));
  }
}

TEST_F(PairSourceTest, TheMiddleIsTaken) {
  const auto file = write("a.png", 20, 3);
  const auto whole = read_image(file, of_side(20)), middle = read_image(file, of_side(16));
  for (std::size_t y = 0; y < 16; ++y) {
    for (std::size_t x = 0; x < 48; ++x) ASSERT_EQ(middle[y * 48 + x], whole[(y + 2) * 60 + 6 + x]);
  }
  const auto grey = read_image(write("g.png", 16, 1, format::Pixels::gray), of_side(16));
  for (std::size_t i = 0; i < grey.size(); i += 3) ASSERT_TRUE(grey[i] == grey[i + 1] && grey[i] == grey[i + 2]);
}

TEST_F(PairSourceTest, ValuesAreThoseOfClip) {
  const at::Tensor images = at::randint(0, 256, {2, 2, 9, 7, 3}, at::kByte);
  const at::Tensor values = normalised(images);
  ASSERT_EQ(values.sizes(), (std::vector<std::int64_t>{2, 2, 3, 9, 7}));
  constexpr std::array<float, 3> kMean = {.48145466F, .4578275F, .40821073F}, kDeviation = {.26862954F, .26130258F, .27577711F};
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto i = static_cast<std::size_t>(c);
    EXPECT_TRUE(at::equal(values.select(2, c), (images.select(4, c).to(at::kFloat) / 255 - kMean[i]) / kDeviation[i]));
  }
  EXPECT_TRUE(at::equal(normalised(images.transpose(0, 1)), values.transpose(0, 1))) << "of a view too";
}

// An image is decoded once, however many pairs it is in.
TEST_F(PairSourceTest, ACacheKeepsImagesNotPairs) {
  PairFiles files;
  for (int i = 0; i < 4; ++i)
    files.images.push_back(
        {.path = write("i" + std::to_string(i) + ".png", 16, static_cast<std::uint8_t>(i)), .name = "", .score = 0});
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      if (i != j) files.train.push_back({i, j, Answer::first});
    }
  }
  const auto source = pair_source(files, Split::train, of_side(16));
  const auto cache = std::make_shared<data::SampleCache>(1 << 20);
  const data::CachedSource cached(source, cache);
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t i = 0; i < source->size(); ++i) ASSERT_EQ(sample(cached, i), sample(*source, i));
  }
  EXPECT_LT(cache->counters().bytes, 5U * 16 * 16 * 3) << "four images and a table, not twelve pairs";
}

TEST_F(PairSourceTest, AnImageThatIsTooSmallOrDamagedIsNamed) {
  const auto small = write("small.png", 15, 0);
  try {
    (void)read_image(small, of_side(16));
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.message().what, HasSubstr("15 x 15 pixels"));
    EXPECT_THAT(error.message().where, HasSubstr("small.png"));
  }
  const auto damaged = write("damaged.png", 16, 0);
  {
    std::fstream bytes(damaged, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(60);
    bytes.put('\x7f');
  }
  try {
    (void)read_image(damaged, of_side(16));
    ADD_FAILURE() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.message().what + error.message().where, HasSubstr("damaged.png"));
    EXPECT_THAT(error.message().what, HasSubstr("CRC"));
  }
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
