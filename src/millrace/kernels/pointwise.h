// Kernels that map each number to one number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/kernels/device_table.h"

namespace millrace::kernels {

// f(x), or with a gradient (in x's layout; undefined: the forward pass) gradient * f'(x). x has a kernel (arguments.h) and is
// dense in any order.
[[nodiscard]] at::Tensor pointwise(Pointwise function, const at::Tensor& x, const at::Tensor& gradient);

}  // namespace millrace::kernels
