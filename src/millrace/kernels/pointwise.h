// Kernels that map each number to one number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

// f(x), or with a gradient (in x's layout; undefined: the forward pass) gradient * f'(x). x has a kernel (arguments.h) and is
// dense in any order.
[[nodiscard]] at::Tensor pointwise(void (*kernel)(const detail::PointwiseArgs&, std::int64_t, std::int64_t), const at::Tensor& x,
                                   const at::Tensor& gradient);

}  // namespace millrace::kernels
