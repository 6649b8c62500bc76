// The arithmetic of cross-entropy for the lanes that share a row. g++ and nvcc both compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// The sum of exp(x) over some numbers, stored as sum * exp(largest), so that it does not overflow.
struct ExpSum {
  float largest = -INFINITY;
  float sum = 0;

  C10_HOST_DEVICE void add(float x) {
    if (x <= largest) {
      if (x > -INFINITY) sum += ::expf(x - largest);  // if x is -inf, `largest` may be -inf too, and x - largest would be NaN
    } else {
      sum = sum * ::expf(largest - x) + 1.0F;
      largest = x;
    }
    if (x != x) sum = x;  // keeps NaN
  }
  C10_HOST_DEVICE void join(const ExpSum& other) {
    if (other.sum == 0.0F) return;
    if (sum == 0.0F) {
      *this = other;
      return;
    }
    const float top = ::fmaxf(largest, other.largest);
    sum = sum * ::expf(largest - top) + other.sum * ::expf(other.largest - top);
    largest = top;
  }
  [[nodiscard]] C10_HOST_DEVICE float logarithm() const { return largest + ::logf(sum); }
};

// The loss of a row: 0 if the row does not count, NaN if its target is not a class.
template <class X>
[[nodiscard]] C10_HOST_DEVICE inline float loss_of_row(const CrossEntropy& args, const X* logits, std::int64_t row,
                                                       float log_sum) {
  const std::int64_t target = args.targets[row];
  if (target == args.ignore_index) return 0.0F;
  if (target < 0 || target >= args.classes) return NAN;
  return log_sum - static_cast<float>(logits[target]);
}

// The gradients of a row's loss with respect to its logits. The gradients are 0 for a row that does not count, whatever its
// logits are.
class LogitGradient {
 public:
  C10_HOST_DEVICE LogitGradient(const CrossEntropy& args, std::int64_t row)
      : target_(args.targets[row]),
        counts_(target_ != args.ignore_index),
        upstream_(*args.upstream),
        log_sum_(counts_ ? args.log_sums[row] : 0.0F) {}

  [[nodiscard]] C10_HOST_DEVICE float operator()(float logit, std::int64_t column) const {
    if (!counts_) return 0.0F;
    return (::expf(logit - log_sum_) - (column == target_ ? 1.0F : 0.0F)) * upstream_;
  }

 private:
  std::int64_t target_;
  bool counts_;
  float upstream_, log_sum_;
};

}  // namespace millrace::kernels::detail
