// The parts of the recipe's registry row that other files than entry.cpp define.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::autoencoder_3d {

// defaults() and presets() are defined in presets.cpp. defaults() returns values that replace defaults shared by all recipes. A
// preset's values replace the recipe's defaults and shared ones.
[[nodiscard]] Json defaults();
// The presets by name. smoke and small have sample data and take minutes on two cores. stable, 32g, multigpu, full (= multigpu)
// and optimized are the published configs.
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// Defined in originals/aliases.cpp: the keys in the files of 3d_ldm (the program that this recipe follows) and the flags of that
// program.
[[nodiscard]] std::vector<config::Alias> aliases();

// Defined in originals/config_files.cpp, for Entry::convert_file. Converts 3d_ldm's published JSON files: its environment file
// and its training config. References ("@key" or "$@key", to a top-level key of this file or of an earlier one) are replaced by
// their values. Keys that Millrace does not use are removed with a notice each. The remaining keys keep their paths, which
// aliases() accepts. The tree of any other file is returned unchanged. These are problems: other expressions that begin with $,
// references to missing keys, a _target_ other than AutoencoderKL, and unsupported networks.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::autoencoder_3d
