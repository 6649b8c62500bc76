// The work of a device's thread in GELU with dropout: it handles the eight elements that one block of random numbers decides. g++
// and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/dropout_lane.h"

namespace millrace::kernels::detail {

// The device's fast exponential function, whose error grows with |x| (about 2 + 1.2 |x| units in the last place), and its fast
// reciprocal.
[[nodiscard]] C10_HOST_DEVICE inline float quick_exp(float x) {
#if defined(__CUDA_ARCH__)
  return __expf(x);
#else
  return ::expf(x);
#endif
}
[[nodiscard]] C10_HOST_DEVICE inline float quick_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  return __frcp_rn(x);
#else
  return 1.0F / x;
#endif
}

// The normal distribution function and its density. The error function uses formula 7.1.26 of Abramowitz and Stegun (error
// 1.5e-7), as on the CPU, because that formula needs the same exponential as the density.
struct Gauss {
  float cdf, pdf;
};
[[nodiscard]] C10_HOST_DEVICE inline Gauss gauss_of(float x) {
  const float e = quick_exp(-0.5F * x * x);
  const float z = ::fminf(::fabsf(x) * 0.70710678F, 1e18F);  // avoids the reciprocal of infinity
  const float t = quick_reciprocal(0.3275911F * z + 1.0F);
  const float p = (((1.061405429F * t - 1.453152027F) * t + 1.421413741F) * t - 0.284496736F) * t + 0.254829592F;
  const float tail = p * t * (e * 0.5F);
  return {x < 0.0F ? tail : 1.0F - tail, e * 0.39894228F};
}

[[nodiscard]] C10_HOST_DEVICE inline float gelu_of(float x) { return x * gauss_of(x).cdf; }
[[nodiscard]] C10_HOST_DEVICE inline float gelu_slope(float x) {
  const Gauss g = gauss_of(x);
  return x * g.pdf + g.cdf;
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

  // Handles elements i and i + 1 of the tensor if they are in [0, count); `word` has the random bits of both elements.
  C10_HOST_DEVICE void pair(std::int64_t i, std::int64_t count, std::uint32_t word) const {
    const bool first = (word & 0xFFFFU) >= keep.threshold, second = (word >> 16U) >= keep.threshold;
    if (i >= 0 && i + 1 < count && holds_pairs(x + i) && holds_pairs(out + i) &&
        (gradient == nullptr || holds_pairs(gradient + i))) {
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
