// JSON as snapshots store it: a canonical text that can hold infinite numbers and NaN, and that is checked when it is parsed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "millrace/base/json.h"

namespace millrace::snapshot::detail {

// Returns the JSON's canonical text: equal values give equal text. A number that JSON can't represent becomes {"$number": "inf"}
// ("-inf", "nan"). Text that is not UTF-8 throws Json::exception.
[[nodiscard]] std::string to_canonical(const Json& value, int indent = -1);
// Reads what to_canonical() wrote. Returns nullopt if the text is not JSON or is nested deeper than Millrace ever writes.
[[nodiscard]] std::optional<Json> from_canonical(std::string_view text);

}  // namespace millrace::snapshot::detail
