#include "recipes/image_pairs/pair_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/format/deflate.h"
#include "millrace/format/png.h"
#include "millrace/nn/pixels.h"
#include "recipes/image_pairs/recipe.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::image_pairs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PairSourceTest : public testing::Test {
 protected:
  PairSourceTest() { std::filesystem::create_directories(folder_); }
  ~PairSourceTest() override { std::filesystem::remove_all(folder_); }

  // Writes an image in which every value shows its position and the number of the image.
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
  const at::Tensor values = nn::clip_pixels(images);
  ASSERT_EQ(values.sizes(), (std::vector<std::int64_t>{2, 2, 3, 9, 7}));
  constexpr std::array<float, 3> kMean = {.48145466F, .4578275F, .40821073F}, kDeviation = {.26862954F, .26130258F, .27577711F};
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto i = static_cast<std::size_t>(c);
    EXPECT_TRUE(at::equal(values.select(2, c), (images.select(4, c).to(at::kFloat) / 255 - kMean[i]) / kDeviation[i]));
  }
  EXPECT_TRUE(at::equal(nn::clip_pixels(images.transpose(0, 1)), values.transpose(0, 1))) << "of a view too";
}

// A cache must decode an image once, however many pairs contain it.
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

// A PNG chunk: length, name, contents, CRC.
std::string chunk(const std::string& name, const std::string& content) {
  const auto number = [](std::uint32_t value) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFFU);
    return text;
  };
  const std::string covered = name + content;
  return number(static_cast<std::uint32_t>(content.size())) + covered + number(format::crc32(std::as_bytes(std::span(covered))));
}

// Files as they occur in a folder of downloaded pictures, each with the error that it must cause; "" if it must be read.
TEST_F(PairSourceTest, PicturesOfAHostileFolder) {
  const std::string png = Fs::real().read_file(write("whole.png", 16, 5));
  constexpr std::size_t kHead = 33;  // signature and IHDR
  const std::string end = chunk("IEND", "");
  const std::string picture = png.substr(kHead, png.size() - kHead - end.size());
  const std::string control("\0\0\0\2\0\0\0\0", 8), frame(26, '\0');
  const std::string animated = png.substr(0, kHead) + chunk("acTL", control) + picture + chunk("fcTL", frame) +
                               chunk("fdAT", std::string("\0\0\0\1", 4) + "other frame") + end;
  std::string huge =
      png.substr(0, 8) + chunk("IHDR", std::string("\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0", 13)) + picture + end;
  // The start of an image and the header of a frame of 64 x 64 grey pixels, without the rest.
  const std::string jpeg("\xff\xd8\xff\xc0\0\x0b\x08\0\x40\0\x40\1\1\x11\0", 15);
  std::string damaged = png;
  damaged[60] = static_cast<char>(damaged[60] ^ 1);
  struct Case {
    std::string name, bytes, said;
  };
  const std::vector<Case> cases = {
      {"wrong extension.jpg", png, ""},
      {"no extension", png, ""},
      {"animated.png", animated, ""},
      {"damaged.png", damaged, "CRC differs"},
      {"truncated.png", png.substr(0, png.size() / 2), "PNG"},
      {"huge.png", huge, "can't hold so many"},
      {"truncated.jpg", jpeg, "JPEG"},
      {"start.jpg", jpeg.substr(0, 3), "JPEG"},
      {"page.png", "<!doctype html><title>404</title>", "PNG"},
      {"empty.png", "", "empty.png"},
  };
  const std::vector<std::uint8_t> due = read_image(folder_ / "whole.png", of_side(16));
  for (const Resize resize : {Resize::crop, Resize::clip}) {
    RecipeConfig recipe = of_side(16);
    recipe.resize = resize;
    for (const Case& row : cases) {
      const auto file = folder_ / row.name;
      std::ofstream(file, std::ios::binary) << row.bytes;
      try {
        EXPECT_EQ(read_image(file, recipe), due) << row.name;
        EXPECT_EQ(row.said, "") << row.name << " was read";
      } catch (const DataError& error) {
        EXPECT_NE(row.said, "") << row.name << " was refused: " << error.what();
        EXPECT_THAT(error.message().what + " " + error.message().where, AllOf(HasSubstr(row.said), HasSubstr(row.name)));
      }
    }
  }
}

// Transparency must be reported once, with the number of images, and the colours must be read unchanged.
TEST_F(PairSourceTest, AlphaIsDroppedWithANotice) {
  constexpr std::size_t kColour = 25;  // offset of the colour type in a PNG
  constexpr int kImages = 10;
  std::string labels;
  std::filesystem::create_directories(folder_ / "images");
  for (int i = 0; i < kImages; ++i) {
    const std::string name = "i" + std::to_string(i) + ".png";
    labels += name + " " + std::to_string(i) + "\n";
    std::string bytes = Fs::real().read_file(write("images/" + name, 16, static_cast<std::uint8_t>(i)));
    if (i == 3) bytes[kColour] = 4;
    if (i == 5 || i == 8) bytes[kColour] = 6;
    if (i == 9) bytes = "\xff\xd8\xff";
    std::ofstream(folder_ / "images" / name, std::ios::binary) << bytes;
  }
  std::ofstream(folder_ / "labels.txt") << labels;
  Sections sections;
  sections.recipe.per_class = 1;
  sections.recipe.theta = 1;
  RunConfig run;
  run.data.dir = folder_.string();
  std::vector<std::string> said;
  Context context;
  context.config = &run;
  context.places.plan_only = true;  // because the images have valid headers and no pixels
  run.optim.schedule = optim::ScheduleKind::cosine_floor;
  context.notice = [&](const std::string& text) { said.push_back(text); };
  ImagePairs(sections, context).before_training();
  EXPECT_THAT(said,
              ::testing::Contains(::testing::StartsWith("alpha is dropped: 3 of 10 images have an alpha channel or a transparent "
                                                        "colour; their colours are used unchanged (the first: \"")));
  // A rule of this recipe, which the key's help does not have.
  const auto lowest_rate = ::testing::Contains(::testing::StartsWith("optim.min_learning_rate is 0, which means a hundredth"));
  EXPECT_THAT(said, lowest_rate);
  said.clear();
  run.optim.min_learning_rate = 1e-12;
  ImagePairs(sections, context).before_training();
  EXPECT_THAT(said, ::testing::Not(lowest_rate));
  EXPECT_THAT(sign_notices(look_at_heads({{.path = folder_ / "none.png", .name = "", .score = 0}})), ::testing::IsEmpty());
}

TEST_F(PairSourceTest, AnImageThatIsTooSmallOrDamagedIsNamed) {
  const auto small = write("small.png", 15, 0);
  const Message too_small = refusal_message<DataError>([&] { (void)read_image(small, of_side(16)); });
  EXPECT_THAT(too_small.what, HasSubstr("15 x 15 pixels"));
  EXPECT_THAT(too_small.where, HasSubstr("small.png"));
  const auto damaged = write("damaged.png", 16, 0);
  {
    std::fstream bytes(damaged, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(60);
    bytes.put('\x7f');
  }
  const Message broken = refusal_message<DataError>([&] { (void)read_image(damaged, of_side(16)); });
  EXPECT_THAT(broken.what + broken.where, HasSubstr("damaged.png"));
  EXPECT_THAT(broken.what, HasSubstr("CRC"));
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
