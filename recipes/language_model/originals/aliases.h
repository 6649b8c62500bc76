// The keys of AGI2's TOML files and its flags.
#pragma once

#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::language_model {

[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::language_model
