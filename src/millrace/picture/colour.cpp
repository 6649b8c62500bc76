#include "millrace/picture/colour.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace::picture {
namespace {

struct Lch {
  double lightness, chroma, hue;  // `hue` is in degrees
};

using Linear = std::array<double, 3>;  // linear sRGB; a colour that sRGB can show has values from 0 to 1

double inverse_f(double t) {
  constexpr double kDelta = 6.0 / 29;
  return t > kDelta ? t * t * t : 3 * kDelta * kDelta * (t - 4.0 / 29);
}

Linear linear_of(const Lch& colour) {
  const double angle = colour.hue * std::numbers::pi / 180;
  const double fy = (colour.lightness + 16) / 116;
  const double x = 0.95047 * inverse_f(fy + colour.chroma * std::cos(angle) / 500);
  const double y = inverse_f(fy);
  const double z = 1.08883 * inverse_f(fy - colour.chroma * std::sin(angle) / 200);
  return {3.2406 * x - 1.5372 * y - 0.4986 * z, -0.9689 * x + 1.8758 * y + 0.0415 * z, 0.0557 * x - 0.2040 * y + 1.0570 * z};
}

bool in_gamut(const Linear& rgb) {
  return std::all_of(rgb.begin(), rgb.end(), [](double value) { return value >= 0 && value <= 1; });
}

// Returns the colour. If sRGB can't show it, reduces its chroma until sRGB can; lightness and hue stay the same.
Colour shown(Lch colour) {
  if (!in_gamut(linear_of(colour))) {
    double low = 0;
    double high = colour.chroma;
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (in_gamut(linear_of({colour.lightness, middle, colour.hue})) ? low : high) = middle;
    }
    colour.chroma = low;
  }
  const Linear rgb = linear_of(colour);
  Colour bytes;
  std::transform(rgb.begin(), rgb.end(), bytes.begin(), [](double value) {
    const double v = std::clamp(value, 0.0, 1.0);
    const double coded = v <= 0.0031308 ? 12.92 * v : 1.055 * std::pow(v, 1 / 2.4) - 0.055;
    return static_cast<std::uint8_t>(std::lround(255 * coded));
  });
  return bytes;
}

constexpr int kSteps = 256;
using Table = std::array<Colour, kSteps>;

Table sequential_table() {
  Table table;
  for (int i = 0; i < kSteps; ++i) {
    const double t = i / (kSteps - 1.0);
    table[static_cast<std::size_t>(i)] = shown({14 + 80 * t, 30 + 60 * (t - 0.4) * (t - 0.4), 310 - 210 * t});
  }
  return table;
}

Table diverging_table() {
  Table table;
  for (int i = 0; i < kSteps; ++i) {
    const double t = 2 * i / (kSteps - 1.0) - 1;
    const double far = std::abs(t);
    table[static_cast<std::size_t>(i)] = shown({97 - 62 * far, 62 * far, t < 0 ? 270.0 : 40.0});
  }
  return table;
}

}  // namespace

Colour colour_of(ColourMap map, double share) {
  static const Table sequential = sequential_table();
  static const Table diverging = diverging_table();
  if (std::isnan(share)) return kNoNumber;
  const auto step = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * (kSteps - 1)));
  return (map == ColourMap::sequential ? sequential : diverging)[step];
}

Colour line_colour(std::size_t n) {
  static const std::array<Colour, 8> colours{shown({42, 60, 275}), shown({62, 75, 55}),  shown({52, 45, 165}),
                                             shown({35, 60, 20}),  shown({68, 50, 335}), shown({12, 0, 0}),
                                             shown({76, 75, 90}),  shown({72, 40, 240})};
  return colours[n % colours.size()];
}

}  // namespace millrace::picture
