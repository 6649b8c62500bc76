// Config files of AGI2.
#pragma once

#include "millrace/config/schema.h"

namespace millrace::recipes::language_model {

// For Entry::convert_file: returns the tree unchanged. A file of AGI2's later model, which learns words by the angles between
// them, is one problem, whatever else it holds.
[[nodiscard]] Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file);

}  // namespace millrace::recipes::language_model
