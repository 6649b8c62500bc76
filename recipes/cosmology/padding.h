// Lengths that the U-Net, which halves each axis twice, can't take: made longer before it, cut off after it.
#pragma once

#include <ATen/core/Tensor.h>

#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

// volumes (N, channels, R, f, bl) with each of the last three axes as long as the next multiple of 4. The values added stand
// behind the last. circular: the first ones again. mirror: the first half mirrors the end, the other half the beginning, so that
// the network's circular convolutions meet no jump. A length that fits stays as it is, to the bit.
[[nodiscard]] at::Tensor padded(const at::Tensor& volumes, Padding padding);

// The part of volumes that has the last three sizes of `like`: what was there before padded().
[[nodiscard]] at::Tensor unpadded(const at::Tensor& volumes, const at::Tensor& like);

}  // namespace millrace::recipes::cosmology
