// The keys of 3d_ldm's files and the flags of its program.
#pragma once

#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::autoencoder_3d {

[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::autoencoder_3d
