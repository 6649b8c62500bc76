// The kinds of GELU.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// GELU itself and the approximations of Hendrycks and Gimpel 2016 (arXiv:1606.08415): by tanh, and x sigmoid(1.702 x), with which
// CLIP was trained.
enum class Gelu : std::uint8_t { exact, tanh, quick };

}  // namespace millrace::kernels
