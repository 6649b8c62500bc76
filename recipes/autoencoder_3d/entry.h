// The recipe's row of the recipe registry.
#pragma once

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::autoencoder_3d {

[[nodiscard]] Entry entry();

}  // namespace millrace::recipes::autoencoder_3d
