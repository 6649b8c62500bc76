// VisionCore's YAML file of a model as keys of this recipe.
#pragma once

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::recipes::neural_response {

// "recipe.…" -> value. What no key says, and what names a network that is not here (its words say which), is added to `problems`,
// `where` being the dotted path in the file.
[[nodiscard]] Json keys_of_model_file(const Json& tree, std::vector<Problem>& problems);

}  // namespace millrace::recipes::neural_response
