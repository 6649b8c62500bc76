// The row of neural_response in the registry.
#pragma once

#include "millrace/train/entry.h"

namespace millrace::recipes::neural_response {

[[nodiscard]] Entry entry();

}  // namespace millrace::recipes::neural_response
