// 3d_ldm's JSON files, environment and training config, read as they are published.
#pragma once

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::autoencoder_3d {

// For Entry::convert_file: the tree of such a file with its references ("@key", "$@key": a top-level key of this file, else of
// one before it) replaced by their values, and without what is not ours, a notice for each. What stays has its own path, which
// aliases() take. Any other tree is returned as it is. Problems: another expression that begins with $, a reference to nothing, a
// _target_ that is no AutoencoderKL, a network that is not here.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::autoencoder_3d
