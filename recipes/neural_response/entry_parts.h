// The parts of the recipe's registry row that other files than entry.cpp define.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::neural_response {

// defaults() and presets() are defined in presets.cpp. defaults() returns values that replace defaults shared by all recipes. A
// preset's values replace the recipe's defaults and shared ones.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// Defined in originals/aliases.cpp: the flags of VisionCore, the program that this recipe follows (originals/README.md).
[[nodiscard]] std::vector<config::Alias> aliases();

// Defined in originals/model_file.cpp. Returns VisionCore's YAML file of a model as "recipe.…" -> value. Settings for which
// Millrace has no key, and networks that are not supported, are added to `problems`, with the dotted path in the file as
// `where`.
[[nodiscard]] Json keys_of_model_file(const Json& tree, std::vector<Problem>& problems);

}  // namespace millrace::recipes::neural_response
