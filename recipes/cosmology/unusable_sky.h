// Stand-ins for files of a sky that can't be used.
#pragma once

#include <filesystem>

#include "millrace/base/error.h"
#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology {

// Returns a file without data sets. Reading from it throws `why`, so that data.bad_samples applies to the samples that need the
// file.
[[nodiscard]] SkyFile unusable_sky(std::filesystem::path path, Problem why);
[[nodiscard]] inline bool is_usable(const SkyFile& file) { return !file->datasets().empty(); }

}  // namespace millrace::recipes::cosmology
