// Named sizes of the language model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"
#include "recipes/language_model/make_data.h"

namespace millrace::recipes::language_model {

// On top of the shared defaults and below the presets.
[[nodiscard]] Json defaults();
[[nodiscard]] std::vector<std::pair<std::string, Json>> presets();
// The sample text of a preset; nullopt for presets that are meant for a real text.
[[nodiscard]] std::optional<SampleText> sample_text_of(const std::string& preset);

}  // namespace millrace::recipes::language_model
