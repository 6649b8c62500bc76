// Colours with a meaning: perceptually even maps from numbers to colours, and the colours of lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::picture {

using Colour = std::array<std::uint8_t, 3>;  // sRGB

enum class ColourMap : std::uint8_t {
  sequential,  // dark violet (least) to light yellow (greatest): equal steps of the value are equal steps of lightness L*
  diverging    // blue (below zero) over near-white (zero) to red-brown (above): for values with a sign
};

// Colour of a share from 0 (least) to 1 (greatest); shares outside are clamped. NaN gives kNoNumber. Computed in CIE L*a*b* (CIE
// 15:2004, white D65) and sRGB (IEC 61966-2-1); 256 steps.
[[nodiscard]] Colour colour_of(ColourMap map, double share);

// Stands for a value that is not a number: a grey that neither map contains.
inline constexpr Colour kNoNumber{140, 140, 140};

// Colour of the n-th line: eight colours that differ in hue and in lightness, so that readers with red-green blindness can
// distinguish them; then they repeat (those curves are dashed).
[[nodiscard]] Colour line_colour(std::size_t n);

}  // namespace millrace::picture
