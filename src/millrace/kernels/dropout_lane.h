// The work of a device's thread in a dropout: it computes one block of random numbers and handles the eight elements that the
// block decides. g++ and nvcc both compile this file. The results equal those of the CPU's kernels, to the bit.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

#include "millrace/kernels/detail/dropout_map.h"
#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// Number of neighbouring threads ("lanes") that handle a group of 128 elements. Each lane handles one pair of neighbours in every
// 32 elements, so that the lanes together read and write whole pieces of 128 bytes (64 for 16-bit numbers).
inline constexpr std::int64_t kLanesOfGroup = 16;

// The number of lanes for `count` elements, if the first of them has the number `first` in its stream.
[[nodiscard]] C10_HOST_DEVICE inline std::int64_t lanes_of(std::int64_t first, std::int64_t count) {
  if (count == 0) return 0;
  return kLanesOfGroup * ((first + count - 1) / kDropoutGroup - first / kDropoutGroup + 1);
}

// Calls of.pair(i, count, bits) for the pairs of elements i and i + 1 that a lane handles; i or i + 1 may lie outside [0, count).
template <class Of>
C10_HOST_DEVICE inline void pairs_of_lane(const Of& of, std::int64_t count, std::int64_t lane) {
  const std::int64_t group = of.keep.first / kDropoutGroup;
  PhiloxBlock words{};
  if (of.keep.threshold > 0) words = dropout_block(of.keep.key, static_cast<std::uint64_t>(group * kLanesOfGroup + lane));
  const std::int64_t number = (group + lane / kLanesOfGroup) * kDropoutGroup + 2 * (lane % kLanesOfGroup);
  const std::int64_t i = number - of.keep.first;
  for (std::int64_t word = 0; word < 4; ++word) of.pair(i + 32 * word, count, words[static_cast<std::size_t>(word)]);
}

template <class T>
struct alignas(2 * sizeof(T)) PairOf {
  T first, second;
};

template <class T>
[[nodiscard]] C10_HOST_DEVICE inline bool holds_pairs(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(PairOf<T>) == 0;
}

// a * b, rounded before anything is added to it, as on a CPU. nvcc would otherwise fuse the product and the sum.
[[nodiscard]] C10_HOST_DEVICE inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

template <class X, class Out>
struct DropoutOf {
  const X* x;
  const Out* residual;  // may be null
  Out* out;
  Keep keep;

  [[nodiscard]] C10_HOST_DEVICE Out of(X value, Out added, bool keeps) const {
    const float kept = keeps ? rounded_product(static_cast<float>(value), keep.scale) : 0.0F;
    return static_cast<Out>(residual == nullptr ? kept : static_cast<float>(added) + kept);
  }

  // Handles elements i and i + 1 of the tensor if they are in [0, count); `word` has the random bits of both elements.
  C10_HOST_DEVICE void pair(std::int64_t i, std::int64_t count, std::uint32_t word) const {
    const bool first = (word & 0xFFFFU) >= keep.threshold, second = (word >> 16U) >= keep.threshold;
    if (i >= 0 && i + 1 < count && holds_pairs(x + i) && holds_pairs(out + i) &&
        (residual == nullptr || holds_pairs(residual + i))) {
      const PairOf<X> in = *reinterpret_cast<const PairOf<X>*>(x + i);
      PairOf<Out> added{Out(0.0F), Out(0.0F)};
      if (residual != nullptr) added = *reinterpret_cast<const PairOf<Out>*>(residual + i);
      *reinterpret_cast<PairOf<Out>*>(out + i) = {of(in.first, added.first, first), of(in.second, added.second, second)};
      return;
    }
    if (i >= 0 && i < count) out[i] = of(x[i], residual == nullptr ? Out(0.0F) : residual[i], first);
    if (i + 1 >= 0 && i + 1 < count) out[i + 1] = of(x[i + 1], residual == nullptr ? Out(0.0F) : residual[i + 1], second);
  }

  C10_HOST_DEVICE void lane(std::int64_t count, std::int64_t lane) const { pairs_of_lane(*this, count, lane); }
};

}  // namespace millrace::kernels::detail
