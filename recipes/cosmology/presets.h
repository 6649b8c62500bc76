// Named sizes of the cosmology recipe, and the keys of hugh.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/config/schema.h"
#include "recipes/cosmology/make_data.h"

namespace millrace::recipes::cosmology {

// Over the shared defaults; presets come on top.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();
[[nodiscard]] std::vector<config::Alias> aliases();
// The sky a preset makes for itself.
[[nodiscard]] std::optional<SkySize> sample_sky_of(const std::string& preset);

}  // namespace millrace::recipes::cosmology
