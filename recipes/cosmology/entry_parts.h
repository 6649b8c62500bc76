// The parts of the recipe's registry row that other files than entry.cpp define.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::cosmology {

// defaults() and presets() are defined in presets.cpp. defaults() returns values that replace defaults shared by all recipes. A
// preset's values replace the recipe's defaults and shared ones.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// Defined in originals/aliases.cpp: the keys in the JSON files of hugh (the program that this recipe follows, see
// originals/README.md) and the flags of hugh's programs.
[[nodiscard]] std::vector<config::Alias> aliases();

// Defined in originals/config_file.cpp, for Entry::convert_file. Returns the tree of a config file of hugh without the keys that
// this network does not use. A section for another script of hugh leads to a notice. A file for hugh's second network leads to a
// single problem, whatever else is in the file.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::cosmology
