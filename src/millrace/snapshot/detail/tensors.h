// Between LibTorch's tensors and bytes on disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <span>

#include "millrace/base/field.h"

namespace millrace::snapshot::detail {

// nullopt for types no file of ours holds (quantised, 8-bit float, half complex, ...).
[[nodiscard]] std::optional<DType> dtype_of(at::ScalarType type) noexcept;
[[nodiscard]] at::ScalarType scalar_type_of(DType dtype) noexcept;

// The tensor itself when it is dense, contiguous and on the CPU, else such a copy. Without gradient.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);
// Memory of a tensor as on_host() gives it.
[[nodiscard]] std::span<std::byte> bytes_of(const at::Tensor& host);

}  // namespace millrace::snapshot::detail
