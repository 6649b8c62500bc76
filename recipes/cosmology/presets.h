// Named sizes of the cosmology recipe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "recipes/cosmology/make_data.h"

namespace millrace::recipes::cosmology {

// Over the shared defaults; presets come on top.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();
// The sky a preset makes for itself.
[[nodiscard]] std::optional<SkySize> sample_sky_of(const std::string& preset);

}  // namespace millrace::recipes::cosmology
