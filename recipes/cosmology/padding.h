// Pads volumes whose sizes the U-Net can't take. The U-Net halves each axis twice, so sizes must be multiples of 4. The padding
// is removed after the network.
#pragma once

#include <ATen/core/Tensor.h>

#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

// Extends each of the last three axes of volumes (N, channels, R, f, bl) at its end to the next multiple of 4. circular: adds the
// first values again. mirror: half of the added values mirror the end and the other half mirrors the beginning, so that the
// network's circular convolutions see no jump. An axis that fits already stays unchanged, to the bit.
[[nodiscard]] at::Tensor padded(const at::Tensor& volumes, Padding padding);

// The inverse of padded(): cuts the last three axes of `volumes` to the sizes of `like`.
[[nodiscard]] at::Tensor unpadded(const at::Tensor& volumes, const at::Tensor& like);

}  // namespace millrace::recipes::cosmology
