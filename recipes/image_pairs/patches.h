// Initial values for the filters of the tower's first layer.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace millrace::recipes::image_pairs {

// Fills filters (width, 3, side, side) with sums of the cosines of a patch's two-dimensional DCT-II, whose coefficients are
// drawn from N(0, s^2 / fan-in). For the cosine with u half waves across and v down, s is |(u, v)| / (side - 1), but at least
// 1/20 and at most 1. The reason: amplitudes in photographs fall as 1 / frequency (Field 1987, JOSA A 4:2379). With this s all
// frequencies contribute about equally, and noise, whose amplitudes do not fall, stands out. Draws as many random numbers as
// independent weights would need.
void fill_whitened(at::Tensor& filters, at::Generator& generator);

}  // namespace millrace::recipes::image_pairs
