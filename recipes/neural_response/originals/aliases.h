// VisionCore's flags.
#pragma once

#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::neural_response
