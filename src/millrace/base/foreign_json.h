// JSON that anybody may have written. What is nested deeply can't be copied or written without a stack of that depth; a value may
// be missing, or of another kind than it should be.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/base/json.h"

namespace millrace {

inline constexpr int kDeepestJson = 64;

// Discarded (Json::is_discarded) when it is no JSON or is nested more than kDeepestJson deep. Never throws but for memory.
[[nodiscard]] Json parse_shallow(std::string_view text);

using JsonKeys = std::initializer_list<std::string_view>;  // of objects, one inside the other

// The value at these keys; null where there is nothing.
[[nodiscard]] const Json& json_at(const Json& json, JsonKeys keys);
// The text there; "" where there is nothing, or something else.
[[nodiscard]] std::string text_at(const Json& json, JsonKeys keys);
// The finite number there; nullopt where there is nothing, or something else.
[[nodiscard]] std::optional<double> number_at(const Json& json, JsonKeys keys);
// The same as a count, at most 1e15; 0 where there is nothing, or a number below 0.
[[nodiscard]] std::int64_t count_at(const Json& json, JsonKeys keys);

}  // namespace millrace
