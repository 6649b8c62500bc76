// What entry.cpp joins into the recipe's row, besides the recipe itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::cosmology {

// presets.cpp: values on top of the shared defaults, and named sizes, which go on top of both.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// originals/aliases.cpp: the keys of hugh's JSON files and of its programs.
[[nodiscard]] std::vector<config::Alias> aliases();

// originals/config_file.cpp, for Entry::convert_file: returns the tree of hugh's file without keys that this network does not
// read. A section for another script of hugh is a notice; a file of hugh's second network is one problem, whatever else it holds.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::cosmology
