// LMOL's flags.
#pragma once

#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::image_pairs {

[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::image_pairs
