// The named sizes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

}  // namespace millrace::recipes::neural_response
