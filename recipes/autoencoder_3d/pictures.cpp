#include "recipes/autoencoder_3d/pictures.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/core/host_values.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr std::array<const char*, 3> kAxes = {"depth", "height", "width"};
constexpr std::int64_t kMostChannels = 16;
constexpr std::int64_t kLeastSide = 256;  // in pixels; a smaller slice is enlarged

at::Tensor middle(const at::Tensor& volume, std::int64_t axis) { return volume.select(axis, volume.size(axis) / 2); }

// Returns the axis along the rows and the axis along the columns of a slice across `axis`.
std::array<std::size_t, 2> sides(std::size_t axis) { return {axis == 0 ? 1U : 0U, axis == 2 ? 1U : 2U}; }

picture::Image::PixelSize pixel_size(const Shown& shown, std::size_t axis, double factor = 1) {
  const auto [row, column] = sides(axis);
  const bool known = shown.spacing[row] > 0 && shown.spacing[column] > 0;
  if (!known) return {factor, factor, "voxels"};
  return {factor * shown.spacing[row], factor * shown.spacing[column], "mm"};
}

double largest(const at::Tensor& values) {
  const auto most = values.abs().max().item<double>();
  return std::isfinite(most) && most > 0 ? most : 1;
}

// Returns the slice as an image whose row axis points upwards, as the text under the picture says.
picture::Image image_of(const at::Tensor& slice, std::string caption, const picture::Range& range,
                        const picture::Image::PixelSize& size) {
  return {.caption = std::move(caption),
          .height = slice.size(0),
          .width = slice.size(1),
          .channels = 1,
          .pixels = host_values<float>(slice.flip(0)),
          .range = range,
          .size = size};
}

std::string plane_of(std::size_t axis) {
  const auto [row, column] = sides(axis);
  return std::string(kAxes.at(column)) + " and " + kAxes.at(row);
}

}  // namespace

Picture draw_planes(const Shown& shown) {
  const at::Tensor difference = shown.recon - shown.target;
  picture::Images page{
      .name = "planes",
      .title = "Original, reconstruction and difference: " + shown.sample,
      .caption =
          "The middle slice across each axis. A slice's axes grow to the right and upwards. Black is 0, white is 1; "
          "in the difference, blue is below the original, white is equal, red is above.",
      .columns = 3,
      .images = {}};
  for (std::size_t axis = 0; axis < kAxes.size(); ++axis) {
    const auto at_axis = static_cast<std::int64_t>(axis);
    const picture::Image::PixelSize size = pixel_size(shown, axis);
    const at::Tensor wrong = middle(difference, at_axis);
    const double most = largest(wrong);
    const double mean = wrong.abs().mean().item<double>();
    page.images.push_back(image_of(middle(shown.target, at_axis), "original, " + plane_of(axis), {0, 1}, size));
    page.images.push_back(image_of(middle(shown.recon, at_axis), "reconstruction", {0, 1}, size));
    page.images.push_back(
        image_of(wrong, "difference ±" + significant(most, 2) + ", mean " + significant(mean, 2), {-most, most}, size));
    page.images.back().colours = picture::ColourMap::diverging;
  }
  return picture::images(page);
}

Picture draw_latent(const Shown& shown) {
  const std::int64_t channels = shown.latent.size(0);
  const std::int64_t drawn = std::min(kMostChannels, channels);
  const double factor = static_cast<double>(shown.target.size(2)) / static_cast<double>(shown.latent.size(3));
  const at::Tensor slices = shown.latent.select(1, shown.latent.size(1) / 2).narrow(0, 0, drawn);
  const double most = largest(slices);
  picture::Images page{
      .name = "latent",
      .title = "Latent volume: " + shown.sample,
      .caption = (drawn < channels ? std::to_string(drawn) + " of " + std::to_string(channels) + " channels, the "
                                   : std::string("All channels, the ")) +
                 "middle slice across depth. Blue is -" + significant(most, 3) + ", white 0, red " + significant(most, 3) +
                 ". All pictures have these colours.",
      .columns = std::min<std::int64_t>(4, drawn),
      .images = {}};
  for (std::int64_t channel = 0; channel < drawn; ++channel) {
    const at::Tensor slice = slices[channel];
    const double deviation = shown.latent[channel].numel() > 1 ? shown.latent[channel].std().item<double>() : 0;
    page.images.push_back(image_of(slice, "channel " + std::to_string(channel) + ", sd " + significant(deviation, 2),
                                   {-most, most}, pixel_size(shown, 0, factor)));
    page.images.back().colours = picture::ColourMap::diverging;
  }
  return picture::images(page);
}

std::vector<Picture> draw_slices(const Shown& shown) {
  std::vector<Picture> pictures;
  for (const auto& [name, volume] : {std::pair("val_img_", shown.target), std::pair("val_recon_", shown.recon)}) {
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      const at::Tensor slice = middle(volume, axis);
      const std::int64_t height = slice.size(0), width = slice.size(1);
      const std::int64_t zoom = std::max<std::int64_t>(1, kLeastSide / std::max(height, width));
      const std::vector<float> values = host_values<float>(slice.nan_to_num(0).clamp(0, 1) * 255);
      Picture picture{.name = name + std::to_string(axis), .width = zoom * width, .height = zoom * height, .rgb = {}};
      picture.rgb.reserve(static_cast<std::size_t>(picture.width * picture.height * 3));
      for (std::int64_t y = 0; y < picture.height; ++y) {
        for (std::int64_t x = 0; x < picture.width; ++x) {
          const float value = values[static_cast<std::size_t>(y / zoom * width + x / zoom)];
          picture.rgb.insert(picture.rgb.end(), 3, static_cast<std::uint8_t>(std::lround(value)));
        }
      }
      pictures.push_back(std::move(picture));
    }
  }
  return pictures;
}

}  // namespace millrace::recipes::autoencoder_3d
