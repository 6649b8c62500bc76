// The kinds of GELU.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// exact: GELU itself. tanh, quick: the approximations of Hendrycks and Gimpel 2016 (arXiv:1606.08415), by tanh and by x
// sigmoid(1.702 x). CLIP was trained with `quick`.
enum class Gelu : std::uint8_t { exact, tanh, quick };

}  // namespace millrace::kernels
