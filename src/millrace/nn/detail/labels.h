// Checks of class labels that do not wait for a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace millrace::nn::detail {

// Logits (..., K), labels (...) int64; DataError shows the actual ones.
void check_labels(const at::Tensor& logits, const at::Tensor& labels);
// RowError for the first invalid label, for labels on the CPU.
void find_bad_label(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

// Returns the result of `compute`. `compute` itself refuses labels outside 0..classes-1, so that valid labels cost no search.
template <class Compute>
auto naming_bad_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index, Compute compute) {
  try {
    return compute();
  } catch (const c10::Error&) {
    find_bad_label(labels, classes, ignore_index);
    throw;
  }
}

// Labels that are all valid, and `poison`: 0, or NaN if some labels were invalid. For devices, where a bad label would end the
// process.
struct SafeLabels {
  at::Tensor labels;
  at::Tensor poison;  // fp32 scalar
};
[[nodiscard]] SafeLabels safe_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

}  // namespace millrace::nn::detail
