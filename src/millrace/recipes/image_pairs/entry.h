// The recipe's row of the registry.
#pragma once

#include "millrace/train/entry.h"

namespace millrace::recipes::image_pairs {

[[nodiscard]] Entry entry();

}  // namespace millrace::recipes::image_pairs
