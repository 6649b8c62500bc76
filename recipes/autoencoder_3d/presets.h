// The recipe's named sizes and what a config of its own says nothing about.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes::autoencoder_3d {

[[nodiscard]] Json defaults();
// smoke, small: data of their own, minutes on two cores. stable, 32g, multigpu, full (= multigpu), optimized: the published
// configs.
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();

}  // namespace millrace::recipes::autoencoder_3d
