// What a run looks like: maps of one chunk side by side, and delay spectra.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/recipes/cosmology/spectra.h"
#include "millrace/picture/picture.h"

namespace millrace::recipes::cosmology {

// "maps": input, truth, recovered and residual (recovered - truth) from left to right, the real part over RA (down) and frequency
// (across) of one chunk (2, R, f, bl), the baseline with the most signal; blue below zero, red above, one scale: three times the
// truth's rms.
[[nodiscard]] Picture draw_maps(const at::Tensor& input, const at::Tensor& truth, const at::Tensor& recovered);

// "delay_residual": power against delay, logarithmic, a grey line every decade: truth black, recovered green, what is left of it
// (recovered - truth) blue, what the input alone leaves red.
[[nodiscard]] Picture draw_delay(const DelaySpectra& spectra);

}  // namespace millrace::recipes::cosmology
