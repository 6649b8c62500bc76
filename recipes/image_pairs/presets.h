// Named sizes of image_pairs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes::image_pairs {

struct Tower {
  std::int64_t image, patch, width, layers, heads, hidden, feature_layer;
};
struct Decoder {
  std::int64_t width, layers, heads, hidden, vocabulary;
};
[[nodiscard]] Json network(const Tower& tower, const Decoder& decoder);  // as keys of the config

[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

}  // namespace millrace::recipes::image_pairs
