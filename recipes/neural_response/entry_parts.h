// What entry.cpp joins into the recipe's row, besides the recipe itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::neural_response {

// presets.cpp: values on top of the shared defaults, and named sizes, which go on top of both.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// originals/aliases.cpp: VisionCore's flags.
[[nodiscard]] std::vector<config::Alias> aliases();

// originals/model_file.cpp: VisionCore's YAML file of a model as "recipe.…" -> value. Settings without a key, and networks that
// are not supported (named in the problem), are added to `problems`, whose `where` is the dotted path in the file.
[[nodiscard]] Json keys_of_model_file(const Json& tree, std::vector<Problem>& problems);

}  // namespace millrace::recipes::neural_response
