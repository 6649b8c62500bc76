// Config files of hugh.
#pragma once

#include "millrace/config/schema.h"

namespace millrace::recipes::cosmology {

// For Entry::convert_file: returns the tree without keys that this network does not read. A section for another script of hugh is
// a notice; a file of hugh's second network is one problem, whatever else it holds.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::cosmology
