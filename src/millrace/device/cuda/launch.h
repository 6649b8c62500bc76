// What launches have in common: for .cu files alone.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "millrace/kernels/device_table.h"

namespace millrace::device {

// Neighbours in sixteen bytes, which a thread reads or writes at once.
template <class X>
struct alignas(16) Piece {
  static constexpr int kElements = 16 / sizeof(X);
  X at[kElements];
};

template <class X, class Launch>
cudaError_t with_second(kernels::detail::Type second, const Launch& launch) {
  if (second == kernels::detail::Type::f32) return launch.template operator()<X, float>();
  if (second == kernels::detail::Type::bf16) return launch.template operator()<X, c10::BFloat16>();
  return launch.template operator()<X, c10::Half>();
}

// Calls launch.operator()<First, Second>() with the element types that these words name.
template <class Launch>
cudaError_t with_types(kernels::detail::Type first, kernels::detail::Type second, const Launch& launch) {
  if (first == kernels::detail::Type::f32) return with_second<float>(second, launch);
  if (first == kernels::detail::Type::bf16) return with_second<c10::BFloat16>(second, launch);
  return with_second<c10::Half>(second, launch);
}

}  // namespace millrace::device
