// The row of neural_response in the registry.
#pragma once

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] Entry entry();

}  // namespace millrace::recipes::neural_response
