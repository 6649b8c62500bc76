#include "millrace/recipes/cosmology/pictures.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace::recipes::cosmology {
namespace {

using Colour = std::array<std::uint8_t, 3>;

Picture blank(std::string name, std::int64_t width, std::int64_t height) {
  return {std::move(name), width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3), 255)};
}

void put(Picture& picture, std::int64_t x, std::int64_t y, Colour colour) {
  if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) return;
  std::copy(colour.begin(), colour.end(), picture.rgb.begin() + (y * picture.width + x) * 3);
}

// -1 blue, 0 white, 1 red.
Colour diverging(double value) {
  const double v = std::clamp(std::isfinite(value) ? value : 0.0, -1.0, 1.0);
  const auto fade = static_cast<std::uint8_t>(std::lround(255 * (1 - std::abs(v))));
  return v < 0 ? Colour{fade, fade, 255} : Colour{255, fade, fade};
}

struct Axes {
  double low, high;  // powers of ten
  std::int64_t width, height;
  [[nodiscard]] std::int64_t x(std::int64_t i, std::int64_t count) const {
    return std::llround(static_cast<double>(i) / static_cast<double>(std::max<std::int64_t>(count - 1, 1)) *
                        static_cast<double>(width - 1));
  }
  [[nodiscard]] std::int64_t y(double logarithm) const {
    return std::llround((high - logarithm) / (high - low) * static_cast<double>(height - 1));
  }
};

void draw_line(Picture& picture, const Axes& axes, const at::Tensor& logarithms, Colour colour) {
  const double* value = logarithms.const_data_ptr<double>();
  const std::int64_t count = logarithms.numel();
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const std::int64_t x0 = axes.x(i, count);
    const std::int64_t x1 = axes.x(i + 1, count);
    const double y0 = static_cast<double>(axes.y(value[i]));
    const double y1 = static_cast<double>(axes.y(value[i + 1]));
    const auto steps = std::max<std::int64_t>(x1 - x0, std::llround(std::abs(y1 - y0))) + 1;
    for (std::int64_t s = 0; s <= steps; ++s) {
      const double share = static_cast<double>(s) / static_cast<double>(steps);
      const std::int64_t x = x0 + std::llround(share * static_cast<double>(x1 - x0));
      const std::int64_t y = std::llround(y0 + share * (y1 - y0));
      put(picture, x, y, colour);
      put(picture, x, y + 1, colour);
    }
  }
}

}  // namespace

Picture draw_maps(const at::Tensor& input, const at::Tensor& truth, const at::Tensor& recovered) {
  constexpr std::int64_t kGap = 6;
  // Signals are sparse: a baseline without one would show nothing but what the network makes up.
  const auto baseline = truth.select(0, 0).square().sum(at::IntArrayRef{0, 1}).argmax().item<std::int64_t>();
  const auto map = [baseline](const at::Tensor& volume) {
    return volume.select(0, 0).select(2, baseline).to(at::kCPU, at::kDouble).contiguous();  // (R, f)
  };
  const std::array<at::Tensor, 4> panels{map(input), map(truth), map(recovered), map(recovered - truth)};
  const std::int64_t rows = panels[0].size(0);
  const std::int64_t columns = panels[0].size(1);
  const std::int64_t zoom = std::max<std::int64_t>(1, 256 / std::max(rows, columns));
  const double scale = 3 * std::max(panels[1].square().mean().sqrt().item<double>(), 1e-30);
  Picture picture = blank("maps", 4 * columns * zoom + 3 * kGap, rows * zoom);
  std::fill(picture.rgb.begin(), picture.rgb.end(), std::uint8_t{90});  // shows between the panels
  for (std::size_t panel = 0; panel < panels.size(); ++panel) {
    const double* value = panels[panel].const_data_ptr<double>();
    const std::int64_t left = static_cast<std::int64_t>(panel) * (columns * zoom + kGap);
    for (std::int64_t y = 0; y < rows * zoom; ++y) {
      for (std::int64_t x = 0; x < columns * zoom; ++x) {
        put(picture, left + x, y, diverging(value[(y / zoom) * columns + x / zoom] / scale));
      }
    }
  }
  return picture;
}

Picture draw_delay(const DelaySpectra& spectra) {
  const auto logarithms = [](const at::Tensor& power) {
    return power.to(at::kCPU, at::kDouble).clamp_min(1e-300).log10().contiguous();
  };
  const std::array<at::Tensor, 4> lines{logarithms(spectra.truth), logarithms(spectra.recovered),
                                        logarithms(spectra.input_residual), logarithms(spectra.residual)};
  constexpr std::array<Colour, 4> kColours{Colour{0, 0, 0}, Colour{0, 140, 60}, Colour{210, 30, 30}, Colour{30, 70, 220}};
  double low = 1e300;
  double high = -1e300;
  for (const at::Tensor& line : lines) {
    low = std::min(low, line.min().item<double>());
    high = std::max(high, line.max().item<double>());
  }
  const Axes axes{std::floor(std::max(low, high - 12)), std::floor(high) + 1, 512, 320};
  Picture picture = blank("delay_residual", axes.width, axes.height);
  for (double decade = axes.low; decade <= axes.high; ++decade) {
    for (std::int64_t x = 0; x < axes.width; ++x) put(picture, x, axes.y(decade), {220, 220, 220});
  }
  for (std::int64_t y = 0; y < axes.height; ++y) put(picture, axes.x(lines[0].numel() / 2, lines[0].numel()), y, {220, 220, 220});
  for (std::size_t i = 0; i < lines.size(); ++i) draw_line(picture, axes, lines[i], kColours[i]);
  return picture;
}

}  // namespace millrace::recipes::cosmology
