// Colours with a meaning: maps from numbers to colours with even perceived steps, and colours for lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::picture {

using Colour = std::array<std::uint8_t, 3>;  // sRGB

enum class ColourMap : std::uint8_t {
  sequential,  // dark violet (least) to light yellow (greatest); equal steps of the value are equal steps of lightness L*
  diverging    // blue (below zero), near-white (zero), red-brown (above zero); for values with a sign
};

// Returns the colour of a share from 0 (least) to 1 (greatest); a share outside that range is clamped, and NaN gives kNoNumber.
// Computed in CIE L*a*b* (CIE 15:2004, white D65) and sRGB (IEC 61966-2-1); 256 steps.
[[nodiscard]] Colour colour_of(ColourMap map, double share);

// The colour of a value that is not a number: a grey that no ColourMap contains.
inline constexpr Colour kNoNumber{140, 140, 140};

// Returns the colour of the n-th line. Eight colours differ in hue and in lightness, so that readers with red-green blindness
// can distinguish them. From the ninth line on the colours repeat, and the lines are dashed.
[[nodiscard]] Colour line_colour(std::size_t n);

}  // namespace millrace::picture
