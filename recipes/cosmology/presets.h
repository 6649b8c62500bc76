// Named sizes of the cosmology recipe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "recipes/cosmology/make_data.h"

namespace millrace::recipes::cosmology {

// On top of the shared defaults and below the presets.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();
// The sample sky of a preset.
[[nodiscard]] std::optional<SkySize> sample_sky_of(const std::string& preset);

}  // namespace millrace::recipes::cosmology
