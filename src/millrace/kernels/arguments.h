// From tensors to the plain arguments of the raw kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "millrace/kernels/detail/choice.h"
#include "millrace/kernels/dropout_bits.h"

namespace millrace::kernels {

// The kernels take these; everything else goes the plain way through ATen.
inline bool has_kernel(const at::Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}
inline detail::Type type_of(at::ScalarType type) { return type == at::kFloat ? detail::Type::f32 : detail::Type::bf16; }
inline detail::Type type_of(const at::Tensor& x) { return type_of(x.scalar_type()); }

inline detail::Keep keep_of(Dropout dropout) { return {dropout.key, dropout_threshold(dropout.p), dropout_scale(dropout.p)}; }

// An undefined tensor given to Function::apply aborts the program in LibTorch 2.11; an empty optional does not.
inline std::optional<at::Tensor> optional(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

}  // namespace millrace::kernels
