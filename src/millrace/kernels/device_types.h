// Element types of a device's kernels, and the pieces of memory that a thread reads or writes at once. g++ and nvcc both compile
// this file.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

inline constexpr std::int64_t kPieceBytes = 16;

// Neighbouring elements that a thread reads or writes at once.
template <class X>
struct alignas(kPieceBytes) Piece {
  static constexpr int kElements = kPieceBytes / sizeof(X);
  X at[kElements];
};

template <class X, class Launch>
auto with_second_type(detail::Type second, const Launch& launch) {
  if (second == detail::Type::f32) return launch.template operator()<X, float>();
  if (second == detail::Type::bf16) return launch.template operator()<X, c10::BFloat16>();
  return launch.template operator()<X, c10::Half>();
}

// Calls launch.operator()<First, Second>() with the C++ types of the elements `first` and `second`.
template <class Launch>
auto with_types(detail::Type first, detail::Type second, const Launch& launch) {
  if (first == detail::Type::f32) return with_second_type<float>(second, launch);
  if (first == detail::Type::bf16) return with_second_type<c10::BFloat16>(second, launch);
  return with_second_type<c10::Half>(second, launch);
}

}  // namespace millrace::kernels
