// The keys of hugh's JSON files and of its programs.
#pragma once

#include <vector>

#include "millrace/config/schema.h"

namespace millrace::recipes::cosmology {

[[nodiscard]] std::vector<config::Alias> aliases();

}  // namespace millrace::recipes::cosmology
