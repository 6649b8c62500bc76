// Converts pictures to the form that networks take.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::nn {

// Converts u8 (..., S, S, 3) to f32 (..., 3, S, S) with the mean and deviation of CLIP's training images (Radford et al. 2021):
// (value / 255 - mean) / deviation. The result is on the images' device and has no gradient.
[[nodiscard]] at::Tensor clip_pixels(const at::Tensor& images);

}  // namespace millrace::nn
