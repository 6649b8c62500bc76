// What entry.cpp joins into the recipe's row, besides the recipe itself.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::image_pairs {

// presets.cpp: values on top of the shared defaults, and named sizes, which go on top of both.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

struct Tower {
  std::int64_t image, patch, width, layers, heads, hidden, feature_layer;
};
struct Decoder {
  std::int64_t width, layers, heads, hidden, vocabulary;
};
// presets.cpp: the sizes of both networks as keys of the config.
[[nodiscard]] Json network(const Tower& tower, const Decoder& decoder);

// originals/aliases.cpp: LMOL's flags.
[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::image_pairs
