// A baseline without a network: the noise of an image, estimated from the image alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "recipes/image_pairs/pairs.h"

namespace millrace::recipes::image_pairs {

// Standard deviation of the noise (0 to 255) in `pixels`, u8 [side,side,3]: sqrt(pi/2) / (6 (side-2)^2) * sum |I * K|, the mean
// over channels, K = [[1,-2,1],[-2,4,-2],[1,-2,1]] (Immerkaer 1996, Computer Vision and Image Understanding 64:300).
[[nodiscard]] double noise_of(std::span<const std::uint8_t> pixels, std::int64_t side);

// Share of `pairs` that the estimate answers rightly: an image is given the known score nearest to minus its noise. `read`
// returns an image's pixels by its number; it is called once per image.
[[nodiscard]] double baseline_accuracy(std::span<const Pair> pairs, std::span<const ImageFile> images, double theta,
                                       std::int64_t side,
                                       const std::function<std::vector<std::uint8_t>(std::int64_t image)>& read);

}  // namespace millrace::recipes::image_pairs
