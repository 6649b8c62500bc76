// Numbers that may not be finite, as JSON, which has no NaN.
#pragma once

#include <cmath>
#include <optional>

#include "millrace/base/format.h"
#include "millrace/base/json.h"

namespace millrace {

// For people and logs: what is not finite is written as text, so that nothing is silently lost.
[[nodiscard]] inline Json number_or_text(double value) { return std::isfinite(value) ? Json(value) : Json(fixed(value, 0)); }
[[nodiscard]] inline Json number_or_text(std::optional<double> value) { return value ? number_or_text(*value) : Json(); }

// For saved state: what is not finite is null and comes back as NaN; see SavedJson::number_or_nan.
[[nodiscard]] inline Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace millrace
