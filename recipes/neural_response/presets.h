// The named sizes, and VisionCore's flags.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();
[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::neural_response
