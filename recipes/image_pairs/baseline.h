// A baseline without a network: estimates the noise of an image from the image itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// The standard deviation of the noise (on the scale 0 to 255) in `pixels`, u8 [side,side,3]: sqrt(pi/2) / (6 (side-2)^2) * sum |I
// * K|, as a mean over channels, where K = [[1,-2,1],[-2,4,-2],[1,-2,1]] (Immerkaer 1996, Computer Vision and Image Understanding
// 64:300).
[[nodiscard]] double noise_of(std::span<const std::uint8_t> pixels, std::int64_t side);

// The share of `pairs` that the estimated noise answers correctly. An image's score is taken to be the known score that is
// nearest to minus the image's noise. `read` returns the pixels of an image by its number; `read` is called once for each image.
[[nodiscard]] double baseline_accuracy(std::span<const Pair> pairs, std::span<const ImageFile> images, double theta,
                                       std::int64_t side,
                                       const std::function<std::vector<std::uint8_t>(std::int64_t image)>& read);

}  // namespace millrace::recipes::image_pairs
