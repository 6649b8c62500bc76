// The work of one of a warp's 32 lanes in a layer norm of a row, with the residual sum and dropout before the norm. The caller
// adds the sums over the lanes. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

#include "millrace/kernels/detail/dropout_map.h"
#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/dropout_lane.h"

// Unrolls a loop whose arrays must be in registers.
#if defined(__CUDA_ARCH__)
#define MILLRACE_UNROLLED _Pragma("unroll")
#else
#define MILLRACE_UNROLLED
#endif

namespace millrace::kernels::detail {

// The part of a row that one lane holds. Each half of the warp handles `kGroups` groups of 128 elements. In each group (a "slot")
// a lane holds four pairs of neighbours, 32 elements apart, which one block of random numbers decides.
template <int kGroups>
struct NormRow {
  static constexpr int kElements = 8 * kGroups;
  int lane = 0;
  std::int64_t width = 0;  // a multiple of 128, at most 256 * kGroups
  float values[kElements] = {};

  [[nodiscard]] C10_HOST_DEVICE std::int64_t group(int slot) const { return 2 * slot + lane / kLanesOfGroup; }
  [[nodiscard]] C10_HOST_DEVICE bool has(int slot) const { return group(slot) * kDropoutGroup < width; }
  // Column of the first element of pair `word` in a slot.
  [[nodiscard]] C10_HOST_DEVICE std::int64_t column(int slot, int word) const {
    return group(slot) * kDropoutGroup + 32 * word + 2 * (lane % kLanesOfGroup);
  }
  // The random words of a slot's eight elements. `first` is the number of the row's first element in the site's stream.
  [[nodiscard]] C10_HOST_DEVICE PhiloxBlock words(std::uint64_t key, std::int64_t first, int slot) const {
    const std::int64_t block = (first / kDropoutGroup + group(slot)) * kLanesOfGroup + lane % kLanesOfGroup;
    return dropout_block(key, static_cast<std::uint64_t>(block));
  }

  [[nodiscard]] C10_HOST_DEVICE float sum() const {
    float total = 0;
    for (int i = 0; i < kElements; ++i) total += values[i];
    return total;
  }
  [[nodiscard]] C10_HOST_DEVICE float squares(float mean) const {
    float total = 0;
    MILLRACE_UNROLLED
    for (int slot = 0; slot < kGroups; ++slot) {
      if (!has(slot)) continue;
      MILLRACE_UNROLLED
      for (int i = 8 * slot; i < 8 * slot + 8; ++i) total += (values[i] - mean) * (values[i] - mean);
    }
    return total;
  }
};

template <class T>
[[nodiscard]] C10_HOST_DEVICE inline PairOf<T> pair_at(const T* row, std::int64_t column) {
  return *reinterpret_cast<const PairOf<T>*>(row + column);
}
template <class T>
C10_HOST_DEVICE inline void put_pair(T* row, std::int64_t column, float first, float second) {
  *reinterpret_cast<PairOf<T>*>(row + column) = {static_cast<T>(first), static_cast<T>(second)};
}

// Loads residual + dropout(branch) and, if there is a branch, writes this sum. All pointers point to the row's first element.
template <class R, class Y, int kGroups>
C10_HOST_DEVICE inline void load_sum(NormRow<kGroups>& row, const R* residual, const Y* branch, R* sum, const Keep& keep) {
  MILLRACE_UNROLLED
  for (int slot = 0; slot < kGroups; ++slot) {
    if (!row.has(slot)) continue;
    PhiloxBlock words{};
    if (branch != nullptr && keep.threshold > 0) words = row.words(keep.key, keep.first, slot);
    MILLRACE_UNROLLED
    for (int word = 0; word < 4; ++word) {
      const std::int64_t column = row.column(slot, word);
      const PairOf<R> in = pair_at(residual, column);
      float first = static_cast<float>(in.first), second = static_cast<float>(in.second);
      if (branch != nullptr) {
        const PairOf<Y> added = pair_at(branch, column);
        const std::uint32_t bits = words[static_cast<std::size_t>(word)];
        if ((bits & 0xFFFFU) >= keep.threshold) first += static_cast<float>(added.first) * keep.scale;
        if ((bits >> 16U) >= keep.threshold) second += static_cast<float>(added.second) * keep.scale;
        put_pair(sum, column, first, second);
      }
      row.values[8 * slot + 2 * word] = first;
      row.values[8 * slot + 2 * word + 1] = second;
    }
  }
}

template <class Y, int kGroups>
C10_HOST_DEVICE inline void write_normed(const NormRow<kGroups>& row, float mean, float rate, const float* weight,
                                         const float* bias, Y* y) {
  MILLRACE_UNROLLED
  for (int slot = 0; slot < kGroups; ++slot) {
    if (!row.has(slot)) continue;
    MILLRACE_UNROLLED
    for (int word = 0; word < 4; ++word) {
      const std::int64_t column = row.column(slot, word);
      const PairOf<float> w = pair_at(weight, column), b = pair_at(bias, column);
      const int i = 8 * slot + 2 * word;
      put_pair(y, column, (row.values[i] - mean) * rate * w.first + b.first,
               (row.values[i + 1] - mean) * rate * w.second + b.second);
    }
  }
}

// A row in the backward pass: its normed values, and the gradient of y times the weight.
template <int kGroups>
struct NormGradientRow {
  NormRow<kGroups> normed;           // (sum - mean) * rate
  float weighted[8 * kGroups] = {};  // dy * weight
};

// Loads normed values and weighted gradients of a row, and adds the row's part of the gradients of weight and bias to the lane's
// sums.
template <class R, class Y, int kGroups>
C10_HOST_DEVICE inline void load_gradient(NormGradientRow<kGroups>& row, const R* sum, const Y* y_gradient, const float* weight,
                                          float mean, float rate, float* weight_gradient, float* bias_gradient) {
  NormRow<kGroups>& normed = row.normed;
  MILLRACE_UNROLLED
  for (int slot = 0; slot < kGroups; ++slot) {
    if (!normed.has(slot)) continue;
    MILLRACE_UNROLLED
    for (int word = 0; word < 4; ++word) {
      const std::int64_t column = normed.column(slot, word);
      const PairOf<R> s = pair_at(sum, column);
      const PairOf<Y> dy = pair_at(y_gradient, column);
      const PairOf<float> w = pair_at(weight, column);
      const int i = 8 * slot + 2 * word;
      normed.values[i] = (static_cast<float>(s.first) - mean) * rate;
      normed.values[i + 1] = (static_cast<float>(s.second) - mean) * rate;
      const float first = static_cast<float>(dy.first), second = static_cast<float>(dy.second);
      row.weighted[i] = first * w.first;
      row.weighted[i + 1] = second * w.second;
      weight_gradient[i] += first * normed.values[i];
      weight_gradient[i + 1] += second * normed.values[i + 1];
      bias_gradient[i] += first;
      bias_gradient[i + 1] += second;
    }
  }
}

template <int kGroups>
[[nodiscard]] C10_HOST_DEVICE inline float sum_of_weighted(const NormGradientRow<kGroups>& row) {
  float total = 0;
  for (int i = 0; i < 8 * kGroups; ++i) total += row.weighted[i];
  return total;
}
template <int kGroups>
[[nodiscard]] C10_HOST_DEVICE inline float sum_of_products(const NormGradientRow<kGroups>& row) {
  float total = 0;
  for (int i = 0; i < 8 * kGroups; ++i) total += row.weighted[i] * row.normed.values[i];
  return total;
}

// Writes the gradients of residual and branch. `mean_weighted` is the row's mean of `weighted`, `mean_product` its mean of
// `weighted` times `normed`. `sum_gradient` and `branch_gradient` may be null.
template <class R, class Y, int kGroups>
C10_HOST_DEVICE inline void write_gradient(const NormGradientRow<kGroups>& row, float rate, float mean_weighted,
                                           float mean_product, const R* sum_gradient, R* residual_gradient, Y* branch_gradient,
                                           const Keep& keep) {
  MILLRACE_UNROLLED
  for (int slot = 0; slot < kGroups; ++slot) {
    if (!row.normed.has(slot)) continue;
    PhiloxBlock words{};
    if (branch_gradient != nullptr && keep.threshold > 0) words = row.normed.words(keep.key, keep.first, slot);
    MILLRACE_UNROLLED
    for (int word = 0; word < 4; ++word) {
      const std::int64_t column = row.normed.column(slot, word);
      const int i = 8 * slot + 2 * word;
      float first = rate * (row.weighted[i] - mean_weighted - row.normed.values[i] * mean_product);
      float second = rate * (row.weighted[i + 1] - mean_weighted - row.normed.values[i + 1] * mean_product);
      if (sum_gradient != nullptr) {
        const PairOf<R> added = pair_at(sum_gradient, column);
        first += static_cast<float>(added.first);
        second += static_cast<float>(added.second);
      }
      put_pair(residual_gradient, column, first, second);
      if (branch_gradient == nullptr) continue;
      const std::uint32_t bits = words[static_cast<std::size_t>(word)];
      put_pair(branch_gradient, column, (bits & 0xFFFFU) >= keep.threshold ? first * keep.scale : 0.0F,
               (bits >> 16U) >= keep.threshold ? second * keep.scale : 0.0F);
    }
  }
}

}  // namespace millrace::kernels::detail

#undef MILLRACE_UNROLLED
