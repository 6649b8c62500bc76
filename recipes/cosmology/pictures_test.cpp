#include "recipes/cosmology/pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "millrace/picture/draw.h"

namespace millrace::recipes::cosmology {
namespace {

std::int64_t pixels_of(const Picture& picture, picture::Colour colour) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) {
    count += picture.rgb[i] == colour[0] && picture.rgb[i + 1] == colour[1] && picture.rgb[i + 2] == colour[2] ? 1 : 0;
  }
  return count;
}

TEST(CosmologyPictures, MapsShowTheBaselineWithTheMostSignalOnOneScale) {
  at::Tensor truth = at::zeros({2, 4, 8, 3});
  truth.select(3, 1).fill_(0.5);
  const Shown shown{.input = truth * 5, .truth = truth, .recovered = truth, .sample = "s1.h5"};
  const Picture maps = draw_maps(shown, {}, {500, 510, 520, 530, 540, 550, 560, 570});
  EXPECT_EQ(maps.name, "maps");
  EXPECT_EQ(maps.width, picture::kWidth);
  using picture::ColourMap;
  // The input exceeds the scale, so its panel has the last colour. Truth and recovered are at a third of the scale and fill two
  // panels. The residual is zero and fills one panel.
  const std::int64_t panel = pixels_of(maps, picture::colour_of(ColourMap::diverging, 1));
  EXPECT_GT(panel, 10000);
  EXPECT_GE(pixels_of(maps, picture::colour_of(ColourMap::diverging, (1 + 1.0 / 3) / 2)), 2 * (panel - 2000));
  EXPECT_GE(pixels_of(maps, picture::colour_of(ColourMap::diverging, 0.5)), panel - 2000);
  EXPECT_LT(pixels_of(maps, picture::kNoNumber), 100) << "letters have a few";
  EXPECT_EQ(draw_maps(shown, {}, {}).width, maps.width) << "channels without a frequency";
}

TEST(CosmologyPictures, DelaySpectraAreDrawnWhateverTheirValues) {
  const at::Tensor power = at::ones({8}, at::kDouble);
  const std::vector<double> freq_mhz{500, 510, 520, 530, 540, 550, 560, 570};
  const Picture spectra = draw_delay({power, power * 0.9, power * 0.1, power * 10}, {}, freq_mhz);
  EXPECT_EQ(spectra.name, "delay_residual");
  for (std::size_t line = 0; line < 4; ++line) EXPECT_GT(pixels_of(spectra, picture::line_colour(line)), 500) << line;
  const at::Tensor none = at::full({8}, std::nan(""), at::kDouble);
  EXPECT_GT(draw_delay({power, none, power * 0, power * 1e40}, {.target_transform = Transform::arcsinh}, {}).height, 100);
  EXPECT_GT(draw_delay({none, none, none, none}, {}, freq_mhz).height, 100);
}

}  // namespace
}  // namespace millrace::recipes::cosmology
