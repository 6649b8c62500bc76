// The parts of the recipe's registry row that are defined outside entry.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::image_pairs {

// Defined in presets.cpp. defaults() replaces some of the default values that all recipes share. A preset of presets() replaces
// values that all recipes share and values of this recipe's own keys.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

struct Tower {
  std::int64_t image, patch, width, layers, heads, hidden, feature_layer;
};
struct Decoder {
  std::int64_t width, layers, heads, hidden, vocabulary;
};
// Defined in presets.cpp: the sizes of both networks as config keys.
[[nodiscard]] Json network(const Tower& tower, const Decoder& decoder);

// Defined in originals/aliases.cpp: the flags of LMOL, the program that this recipe follows (originals/README.md).
[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::image_pairs
