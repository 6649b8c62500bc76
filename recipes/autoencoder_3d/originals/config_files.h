// 3d_ldm's JSON files, environment and training config, as they are published.
#pragma once

#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::autoencoder_3d {

// For Entry::convert_file: returns the tree of such a file with its references ("@key", "$@key": a top-level key of this file,
// else of an earlier one) replaced by their values, and without foreign keys, each of which gets a notice. The keys that remain
// have their own paths, which aliases() accepts. Any other tree is returned unchanged. Problems: another expression that begins
// with $, a dangling reference, a _target_ other than AutoencoderKL, a network that is not supported.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::autoencoder_3d
