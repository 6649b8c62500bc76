// VisionCore's YAML file of a model, translated to keys of this recipe.
#pragma once

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::recipes::neural_response {

// Returns "recipe.…" -> value. Settings without a key, and networks that are not supported (named in the problem), are added to
// `problems`; `where` is the dotted path in the file.
[[nodiscard]] Json keys_of_model_file(const Json& tree, std::vector<Problem>& problems);

}  // namespace millrace::recipes::neural_response
