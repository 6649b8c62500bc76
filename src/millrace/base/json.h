// The JSON value of the whole tree. Keys are kept in order of name, so dump() of equal values is equal text.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace {

using Json = nlohmann::json;

}  // namespace millrace
