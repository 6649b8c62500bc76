// Kernels that map each number to one number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/kernels/device_table.h"

namespace millrace::kernels {

// f(x) if `gradient` is undefined, else gradient * f'(x); the gradient has x's layout. x must have a kernel (arguments.h) and be
// dense in any order.
[[nodiscard]] at::Tensor pointwise(Pointwise function, const at::Tensor& x, const at::Tensor& gradient);

}  // namespace millrace::kernels
