// JSON from unknown authors. It may be nested so deeply that copying or writing it overflows the stack; a value may be missing,
// or of an unexpected kind.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "millrace/base/json.h"

namespace millrace {

inline constexpr int kDeepestJson = 64;

// Discarded (Json::is_discarded) if `text` is no JSON or is nested more than kDeepestJson deep. Throws only if memory runs out.
[[nodiscard]] Json parse_shallow(std::string_view text);

using JsonKeys = std::initializer_list<std::string_view>;  // of objects, one inside the other

// The value at these keys; null if there is nothing.
[[nodiscard]] const Json& json_at(const Json& json, JsonKeys keys);
// The text at these keys; "" if there is nothing or something else.
[[nodiscard]] std::string text_at(const Json& json, JsonKeys keys);
// The finite number at these keys; nullopt if there is nothing or something else.
[[nodiscard]] std::optional<double> number_at(const Json& json, JsonKeys keys);
// The number at these keys as a count, at most 1e15; 0 if there is nothing or a number below 0.
[[nodiscard]] std::int64_t count_at(const Json& json, JsonKeys keys);

}  // namespace millrace
