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

// Parses `text`. The result is discarded (Json::is_discarded) if `text` is not JSON or nests deeper than kDeepestJson. Throws
// only if memory runs out.
[[nodiscard]] Json parse_shallow(std::string_view text);

using JsonKeys = std::initializer_list<std::string_view>;  // keys of nested objects, the outermost first

// Returns the value at these keys; a JSON null if there is no value.
[[nodiscard]] const Json& json_at(const Json& json, JsonKeys keys);
// Returns the text at these keys; "" if there is no text.
[[nodiscard]] std::string text_at(const Json& json, JsonKeys keys);
// Returns the finite number at these keys; nullopt if there is no finite number.
[[nodiscard]] std::optional<double> number_at(const Json& json, JsonKeys keys);
// Returns the number at these keys as a count of at most 1e15; 0 if there is no number or the number is negative.
[[nodiscard]] std::int64_t count_at(const Json& json, JsonKeys keys);

}  // namespace millrace
