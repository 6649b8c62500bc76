// Initial filters of a tower's first layer.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace millrace::recipes::image_pairs {

// Fills filters (width, 3, side, side) with sums of the cosines of a patch's two-dimensional DCT-II, drawn from N(0, s^2 /
// fan-in). For the cosine with u half waves across and v down, s is |(u, v)| / (side - 1), at least 1/20 and at most 1:
// amplitudes of photographs fall as 1 / frequency (Field 1987, JOSA A 4:2379), so that each frequency contributes about equally,
// and noise, whose amplitudes do not fall, stands out. Uses as many random numbers as independent weights would.
void fill_whitened(at::Tensor& filters, at::Generator& generator);

}  // namespace millrace::recipes::image_pairs
