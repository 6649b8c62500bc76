// The parts of the recipe's registry row that other files than entry.cpp define.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::cosmology {

// Defined in presets.cpp. defaults() replaces values of the defaults that all recipes share. A preset replaces values of both.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// In originals/aliases.cpp: the keys in the JSON files of hugh (the program that this recipe follows, see originals/README.md)
// and the flags of its programs.
[[nodiscard]] std::vector<config::Alias> aliases();

// In originals/config_file.cpp, for Entry::convert_file. Returns the tree of a config file of hugh without the keys that this
// network does not use. A section for another script of hugh leads to a notice. A file for hugh's second network leads to a
// single problem, whatever else is in it.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::cosmology
