#include "recipes/cosmology/pictures.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "millrace/core/host_values.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::cosmology {
namespace {

std::optional<picture::Extent> extent_of(const std::vector<double>& freq_mhz) {
  if (freq_mhz.size() < 2) return std::nullopt;
  return picture::Extent{freq_mhz.front(), freq_mhz.back()};
}

}  // namespace

Picture draw_maps(const Shown& shown, const RecipeConfig& recipe, const std::vector<double>& freq_mhz) {
  // Shows the baseline with the strongest signal. Signals are sparse, and for a baseline without signal the picture would only
  // show what the network invents.
  const auto baseline = shown.truth.select(0, 0).square().sum(at::IntArrayRef{0, 1}).argmax().item<std::int64_t>();
  const bool kelvin = shown.unit.empty() || shown.unit == "K";
  const auto in_unit = [&](const at::Tensor& volume) {  // (R, f); kelvin become millikelvin
    const at::Tensor map = volume.select(0, 0).select(2, baseline).to(at::kCPU, at::kDouble);
    return (recipe.target_transform == Transform::arcsinh ? map.sinh() : map) * ((kelvin ? 1e3 : 1) / recipe.scale);
  };
  const at::Tensor truth = in_unit(shown.truth);
  const at::Tensor recovered = in_unit(shown.recovered);
  const double far = 3 * truth.square().mean().sqrt().item<double>();
  const auto extent = extent_of(freq_mhz);
  picture::Maps maps{.name = "maps",
                     .title = "Sky with its foreground removed" + (shown.sample.empty() ? "" : ": " + shown.sample),
                     .caption = "Real part, baseline " + std::to_string(baseline) + " of " + std::to_string(shown.truth.size(3)) +
                                " (counted from 0): the one with the most signal. Residual = recovered − truth.",
                     .x = {.label = extent ? "frequency" : "channel", .unit = extent ? "MHz" : ""},
                     .y = {.label = "RA sample"},
                     .x_extent = extent,
                     .value = {.label = kelvin ? "brightness" : "visibility", .unit = kelvin ? "mK" : shown.unit},
                     .colours = picture::ColourMap::diverging,
                     .maps = {}};
  if (std::isfinite(far) && far > 0) maps.value.limits = picture::Range{-far, far};
  const auto add = [&](const std::string& title, const at::Tensor& map) {
    maps.maps.push_back({.title = title, .height = map.size(0), .width = map.size(1), .values = host_values<float>(map)});
  };
  add("input", in_unit(shown.input));
  add("truth", truth);
  add("recovered", recovered);
  add("residual", recovered - truth);
  return picture::maps(maps);
}

Picture draw_delay(const DelaySpectra& spectra, const RecipeConfig& recipe, const std::vector<double>& freq_mhz,
                   const std::string& unit) {
  const bool transformed = recipe.target_transform == Transform::arcsinh;
  const std::int64_t channels = spectra.truth.numel();
  const bool known =
      static_cast<std::int64_t>(freq_mhz.size()) == channels && channels > 1 && freq_mhz.back() != freq_mhz.front();
  const double width =
      known ? std::abs(freq_mhz.back() - freq_mhz.front()) / static_cast<double>(channels - 1) : 1;  // width of a channel, in MHz
  const std::int64_t zero = channels / 2;
  std::vector<double> delay;
  for (std::int64_t i = 0; i < channels; ++i) {
    const auto turns = static_cast<double>(i - zero);
    delay.push_back(known ? 1e3 * turns / (static_cast<double>(channels) * width) : turns);
  }
  picture::Curves curves{.name = "delay_residual",
                         .title = "Delay spectra, summed over the validation",
                         .caption = "Smooth foregrounds gather around zero; the signal does not.",
                         .x = {.label = "delay", .unit = known ? "ns" : ""},
                         .y = {.label = transformed ? "power after arcsinh" : "power",
                               .unit = transformed ? "" : (unit.empty() ? "K" : unit) + "²",
                               .logarithmic = true},
                         .series = {}};
  double high = 0;
  double low = std::numeric_limits<double>::max();
  const auto add = [&](const std::string& name, const at::Tensor& power) {
    std::vector<double> y = host_values<double>(transformed ? power : power / (recipe.scale * recipe.scale));
    for (const double value : y) {
      if (!std::isfinite(value) || value <= 0) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    curves.series.push_back({.name = name, .x = delay, .y = std::move(y)});
  };
  add("truth", spectra.truth);
  add("recovered", spectra.recovered);
  add("left by the network", spectra.residual);
  add("left by PCA alone", spectra.input_residual);
  if (low < high * 1e-12) curves.y.limits = picture::Range{high * 1e-12, high * 2};
  return picture::curves(curves);
}

}  // namespace millrace::recipes::cosmology
