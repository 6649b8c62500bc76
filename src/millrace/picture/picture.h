// The format of the pictures that a recipe draws of its model's work; millrace/picture/draw.h has the functions for drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct Picture {
  std::string name;  // name of the file, without suffix
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // rows from the top, three bytes per pixel
};

}  // namespace millrace
