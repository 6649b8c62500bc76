// The JSON type of all of Millrace. Its keys are sorted by name, so equal values give equal text in dump().
#pragma once

#include <nlohmann/json.hpp>

namespace millrace {

using Json = nlohmann::json;

}  // namespace millrace
