// The recipe's row of the recipe registry.
#pragma once

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] Entry entry();

}  // namespace millrace::recipes::neural_response
