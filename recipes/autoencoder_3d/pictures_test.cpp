#include "recipes/autoencoder_3d/pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "millrace/format/png.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

using testing::ElementsAre;

std::int64_t pixels_of(const Picture& picture, picture::Colour colour) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) {
    count += picture.rgb[i] == colour[0] && picture.rgb[i + 1] == colour[1] && picture.rgb[i + 2] == colour[2] ? 1 : 0;
  }
  return count;
}

// A ball that is brighter than its surroundings, and a reconstruction with another brightness.
Shown ball() {
  const auto axis = [](std::int64_t size) { return at::arange(size, at::kFloat) - static_cast<double>(size - 1) / 2; };
  const at::Tensor square = axis(24).square().view({24, 1, 1}) + axis(32).square().view({1, 32, 1}) + axis(40).square();
  const at::Tensor target = ((100 - square) / 20).sigmoid();
  return {.target = target,
          .recon = target * 0.8 + 0.02,
          .latent = at::linspace(-2, 2, 5).view({5, 1, 1, 1}).expand({5, 6, 8, 10}).contiguous(),
          .sample = "v001.npz",
          .spacing = {5, 3.2, 3.2}};
}

// If MILLRACE_PICTURES names a folder, keeps the pictures that the tests draw, so that people can look at them.
void keep(const Picture& picture) {
  const char* folder = std::getenv("MILLRACE_PICTURES");
  if (folder == nullptr) return;
  const auto png =
      format::encode_png({picture.height, picture.width, format::Pixels::rgb}, std::as_bytes(std::span(picture.rgb)));
  std::ofstream(std::string(folder) + "/" + picture.name + ".png", std::ios::binary)
      .write(reinterpret_cast<const char*>(png.data()), static_cast<std::streamsize>(png.size()));
}

TEST(AutoencoderPictures, PlanesStandBesideEachOtherOnOneScale) {
  Shown shown = ball();
  const Picture planes = draw_planes(shown);
  keep(planes);
  EXPECT_EQ(planes.name, "planes");
  EXPECT_EQ(planes.width, picture::kWidth);
  EXPECT_GT(pixels_of(planes, {255, 255, 255}), 1000);
  EXPECT_GT(pixels_of(planes, picture::colour_of(picture::ColourMap::diverging, 0)), 1000) << "the ball is too dark everywhere";
  EXPECT_EQ(pixels_of(draw_planes({shown.target, shown.target, shown.latent, "same", {}}),
                      picture::colour_of(picture::ColourMap::diverging, 0)),
            0);
  shown.recon = at::full({24, 32, 40}, std::nan(""));
  EXPECT_GT(pixels_of(draw_planes(shown), picture::kNoNumber), 1000);
}

TEST(AutoencoderPictures, LatentChannelsShareAScale) {
  Shown shown = ball();
  const Picture latent = draw_latent(shown);
  keep(latent);
  EXPECT_EQ(latent.name, "latent");
  using picture::ColourMap;
  for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0})
    EXPECT_GT(pixels_of(latent, picture::colour_of(ColourMap::diverging, share)), 1000) << share;
  shown.latent = at::randn({20, 6, 8, 10});
  EXPECT_GT(draw_latent(shown).height, latent.height);
  shown.latent = at::zeros({1, 1, 1, 1});
  EXPECT_GT(draw_latent(shown).height, 100);
}

TEST(AutoencoderPictures, SlicesArePlainAndHaveTheOriginalsTags) {
  const Shown shown = ball();
  std::vector<std::string> names;
  for (const Picture& picture : draw_slices(shown)) {
    keep(picture);
    names.push_back(picture.name);
    EXPECT_EQ(picture.rgb.size(), static_cast<std::size_t>(picture.width * picture.height * 3));
  }
  EXPECT_THAT(names, ElementsAre("val_img_0", "val_img_1", "val_img_2", "val_recon_0", "val_recon_1", "val_recon_2"));
  const Picture first = draw_slices(shown)[0];
  EXPECT_EQ(first.width, 40 * 6);
  EXPECT_EQ(first.height, 32 * 6);
  const auto middle = static_cast<std::size_t>((first.height / 2 * first.width + first.width / 2) * 3);
  EXPECT_GT(first.rgb[middle], 250);
  EXPECT_LT(first.rgb[0], 5);
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
