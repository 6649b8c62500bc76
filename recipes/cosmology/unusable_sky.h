// Files of a sky that can't be used, in the places where usable ones would be.
#pragma once

#include <filesystem>

#include "millrace/base/error.h"
#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

// A file without data sets, whose reading throws `why`: the samples that need it go the way of all that can't be read.
[[nodiscard]] SkyFile unusable_sky(std::filesystem::path path, Problem why);
[[nodiscard]] inline bool is_usable(const SkyFile& file) { return !file->datasets().empty(); }

}  // namespace millrace::recipes::cosmology
