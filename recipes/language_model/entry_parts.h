// The parts of the recipe's registry row that other files than entry.cpp define.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::language_model {

// defaults() and presets() are defined in presets.cpp. defaults() returns values that replace defaults shared by all recipes. A
// preset's values replace the recipe's defaults and shared ones.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// Defined in originals/aliases.cpp: the keys in the TOML files of AGI2 (the program that this recipe follows, see
// originals/README.md) and the flags of AGI2.
[[nodiscard]] std::vector<config::Alias> aliases();

// Defined in originals/config_file.cpp, for Entry::convert_file. Returns the tree of a file of AGI2 unchanged. A file of AGI2's
// later model, which learns words by the angles between them, leads to a single problem, whatever else is in the file.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::language_model
