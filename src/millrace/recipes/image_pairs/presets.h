// Named sizes of image_pairs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes::image_pairs {

[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

}  // namespace millrace::recipes::image_pairs
