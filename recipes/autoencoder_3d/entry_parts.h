// What entry.cpp joins into the recipe's row, besides the recipe itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::autoencoder_3d {

// presets.cpp: values on top of the shared defaults, and named sizes, which go on top of both.
[[nodiscard]] Json defaults();
// smoke, small: presets with sample data, minutes on two cores. stable, 32g, multigpu, full (= multigpu), optimized: the
// published configs.
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

// originals/aliases.cpp: the keys of 3d_ldm's files and the flags of its program.
[[nodiscard]] std::vector<config::Alias> aliases();

// originals/config_files.cpp, for Entry::convert_file: 3d_ldm's JSON files, environment and training config, as they are
// published. Returns the tree of such a file with its references ("@key", "$@key": a top-level key of this file, else of an
// earlier one) replaced by their values, and without foreign keys, each of which gets a notice. The keys that remain have their
// own paths, which aliases() accepts. Any other tree is returned unchanged. Problems: another expression that begins with $, a
// dangling reference, a _target_ other than AutoencoderKL, a network that is not supported.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::autoencoder_3d
