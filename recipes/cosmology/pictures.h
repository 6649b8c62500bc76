// Pictures of a run: maps of one chunk side by side, and delay spectra.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "millrace/picture/picture.h"
#include "recipes/cosmology/config.h"
#include "recipes/cosmology/spectra.h"

namespace millrace::recipes::cosmology {

// One chunk (2, R, f, bl) as the network sees it, and the name of its sample.
struct Shown {
  at::Tensor input, truth, recovered;  // undefined if missing
  std::string sample;                  // the name of the signal file; "" if unknown
  std::string unit = {};               // of the visibilities; "": kelvin
};

// "maps": input, truth, recovered and residual (recovered - truth): the real part (kelvin as millikelvin) over frequency (across)
// and RA (down) for the baseline with the most signal; blue below zero, red above, one scale: three times the truth's rms.
// freq_mhz: the centres of the channels; empty: channels are numbered.
[[nodiscard]] Picture draw_maps(const Shown& shown, const RecipeConfig& recipe, const std::vector<double>& freq_mhz);

// "delay_residual": power against delay, logarithmic, at most the best twelve decades: truth, recovered, the network's residual
// (recovered - truth) and the residual of the input alone (input - truth), summed over a validation. `unit` as in Shown.
[[nodiscard]] Picture draw_delay(const DelaySpectra& spectra, const RecipeConfig& recipe, const std::vector<double>& freq_mhz,
                                 const std::string& unit = "");

}  // namespace millrace::recipes::cosmology
