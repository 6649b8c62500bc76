// Pictures in the form that networks take.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn {

// u8 (..., S, S, 3) -> f32 (..., 3, S, S): (value / 255 - mean) / deviation of CLIP's training images (Radford et al. 2021), on
// the images' device. No gradient.
[[nodiscard]] at::Tensor clip_pixels(const at::Tensor& images);

}  // namespace millrace::nn
