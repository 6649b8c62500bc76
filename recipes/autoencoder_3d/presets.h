// The recipe's defaults and named sizes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes::autoencoder_3d {

[[nodiscard]] Json defaults();
// smoke, small: presets with sample data, minutes on two cores. stable, 32g, multigpu, full (= multigpu), optimized: the
// published configs.
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

}  // namespace millrace::recipes::autoencoder_3d
