// JSON that anybody may have written: what is nested deeply can't be copied or written without a stack of that depth.
#pragma once

#include <string_view>

#include "millrace/base/json.h"

namespace millrace {

inline constexpr int kDeepestJson = 64;

// Discarded (Json::is_discarded) when it is no JSON or is nested more than kDeepestJson deep. Never throws but for memory.
[[nodiscard]] Json parse_shallow(std::string_view text);

}  // namespace millrace
