// Checks class labels without waiting for a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace millrace::nn::detail {

// Throws DataError, with the actual shapes and types, unless logits are (..., K) and labels (...) int64.
void check_labels(const at::Tensor& logits, const at::Tensor& labels);
// Throws RowError for the first invalid label. The labels must be on the CPU.
void find_bad_label(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

// Returns the result of `compute`. If `compute` refuses labels outside 0..classes-1, searches for the bad label and names it in
// a RowError. So valid labels cost no search.
template <class Compute>
auto naming_bad_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index, Compute compute) {
  try {
    return compute();
  } catch (const c10::Error&) {
    find_bad_label(labels, classes, ignore_index);
    throw;
  }
}

// Labels in which invalid ones are replaced by valid ones, and `poison`: NaN if some labels were invalid, else 0. For devices,
// where an invalid label would end the process.
struct SafeLabels {
  at::Tensor labels;
  at::Tensor poison;  // fp32 scalar
};
[[nodiscard]] SafeLabels safe_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

}  // namespace millrace::nn::detail
