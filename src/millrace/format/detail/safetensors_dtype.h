// Names of element types in safetensors files.
#pragma once

#include <optional>
#include <string_view>

#include "millrace/base/field.h"

namespace millrace::format::detail {

[[nodiscard]] std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept;

}  // namespace millrace::format::detail
