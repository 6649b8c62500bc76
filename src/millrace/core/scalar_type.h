// Converts between LibTorch's element types and Millrace's.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "millrace/base/field.h"

namespace millrace {

// Returns Millrace's DType for the element type `type`; nullopt for types that no Millrace file holds (quantised, 8-bit float,
// half complex, ...).
[[nodiscard]] std::optional<DType> dtype_of(at::ScalarType type) noexcept;
[[nodiscard]] at::ScalarType scalar_type_of(DType dtype) noexcept;

}  // namespace millrace
