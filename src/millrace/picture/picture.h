// Pictures a recipe draws of what its model does; millrace/picture/draw.h draws them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct Picture {
  std::string name;  // of the file, without suffix
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // rows from the top, three bytes a pixel
};

}  // namespace millrace
