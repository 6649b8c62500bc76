// Padding for lengths that the U-Net, which halves each axis twice, can't take: added before it, cut off after it.
#pragma once

#include <ATen/core/Tensor.h>

#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

// Extends each of the last three axes of volumes (N, channels, R, f, bl) to the next multiple of 4. The values are added at the
// end. circular: the first values again. mirror: the first half mirrors the end, the other half the beginning, so that the
// network's circular convolutions meet no jump. An axis that fits stays unchanged, to the bit.
[[nodiscard]] at::Tensor padded(const at::Tensor& volumes, Padding padding);

// The part of volumes with the last three sizes of `like`: the inverse of padded().
[[nodiscard]] at::Tensor unpadded(const at::Tensor& volumes, const at::Tensor& like);

}  // namespace millrace::recipes::cosmology
