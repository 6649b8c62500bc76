// Pictures of a run: maps of a chunk side by side, and delay spectra.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "millrace/picture/picture.h"
#include "recipes/cosmology/config.h"
#include "recipes/cosmology/spectra.h"

namespace millrace::recipes::cosmology {

// A chunk (2, R, f, bl) as the network sees it, and the name of its sample.
struct Shown {
  at::Tensor input, truth, recovered;  // undefined if there is no such volume
  std::string sample;                  // name of the signal's file; "" if unknown
  std::string unit = {};               // unit of the visibilities; "" = kelvin
};

// The picture "maps": input, truth, recovered and residual (recovered - truth), each as its real part over frequency (across) and
// RA (down), for the baseline with the strongest signal. Kelvin are shown as millikelvin. Negative values are blue, positive ones
// red; all maps have the same scale, up to three times the truth's rms. freq_mhz: the centres of the channels; empty = channels
// are shown by their numbers.
[[nodiscard]] Picture draw_maps(const Shown& shown, const RecipeConfig& recipe, const std::vector<double>& freq_mhz);

// The picture "delay_residual": power over delay on a logarithmic scale, at most the upper twelve decades. Its curves are the
// truth, the recovered signal, the residual of the network (recovered - truth) and the residual of the input (input - truth),
// summed over a validation. `unit`: as in Shown.
[[nodiscard]] Picture draw_delay(const DelaySpectra& spectra, const RecipeConfig& recipe, const std::vector<double>& freq_mhz,
                                 const std::string& unit = "");

}  // namespace millrace::recipes::cosmology
