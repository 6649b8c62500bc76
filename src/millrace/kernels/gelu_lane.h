// The work of a device's thread in GELU with dropout: the eight elements that one block of random numbers serves. g++ and nvcc both
// compile it.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/dropout_lane.h"

namespace millrace::kernels::detail {

// x times the normal distribution function.
[[nodiscard]] C10_HOST_DEVICE inline float gelu_of(float x) { return 0.5F * x * (1.0F + ::erff(x * 0.70710678F)); }
[[nodiscard]] C10_HOST_DEVICE inline float gelu_slope(float x) {
  return 0.5F * (1.0F + ::erff(x * 0.70710678F)) + x * 0.39894228F * ::expf(-0.5F * x * x);
}

template <class X>
struct GeluOf {
  const X* x;
  const X* gradient;  // null in the forward pass
  X* out;
  Keep keep;

  [[nodiscard]] C10_HOST_DEVICE X of(X value, X upstream, bool keeps) const {
    if (!keeps) return static_cast<X>(0.0F);
    const auto at = static_cast<float>(value);
    return static_cast<X>(keep.scale * (gradient == nullptr ? gelu_of(at) : static_cast<float>(upstream) * gelu_slope(at)));
  }

  // Handles elements i and i + 1 of the tensor if they are in [0, count); `word` has the bits of both.
  C10_HOST_DEVICE void pair(std::int64_t i, std::int64_t count, std::uint32_t word) const {
    const bool first = (word & 0xFFFFU) >= keep.threshold, second = (word >> 16U) >= keep.threshold;
    if (i >= 0 && i + 1 < count && holds_pairs(x + i) && holds_pairs(out + i) && (gradient == nullptr || holds_pairs(gradient + i))) {
      const PairOf<X> in = *reinterpret_cast<const PairOf<X>*>(x + i);
      PairOf<X> upstream{X(0.0F), X(0.0F)};
      if (gradient != nullptr) upstream = *reinterpret_cast<const PairOf<X>*>(gradient + i);
      *reinterpret_cast<PairOf<X>*>(out + i) = {of(in.first, upstream.first, first), of(in.second, upstream.second, second)};
      return;
    }
    if (i >= 0 && i < count) out[i] = of(x[i], gradient == nullptr ? X(0.0F) : gradient[i], first);
    if (i + 1 >= 0 && i + 1 < count) out[i + 1] = of(x[i + 1], gradient == nullptr ? X(0.0F) : gradient[i + 1], second);
  }

  C10_HOST_DEVICE void lane(std::int64_t count, std::int64_t lane) const { pairs_of_lane(*this, count, lane); }
};

}  // namespace millrace::kernels::detail
