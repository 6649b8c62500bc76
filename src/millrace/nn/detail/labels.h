// What is checked of class labels, without a wait for a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace millrace::nn::detail {

// Logits (..., K), labels (...) int64; DataError shows what they are.
void check_labels(const at::Tensor& logits, const at::Tensor& labels);
// RowError for the first label that is no class, of labels on the CPU.
void find_bad_label(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

// What `compute` returns. It refuses labels outside 0..classes-1 itself, so that looking for them costs nothing where all is
// well.
template <class Compute>
auto naming_bad_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index, Compute compute) {
  try {
    return compute();
  } catch (const c10::Error&) {
    find_bad_label(labels, classes, ignore_index);
    throw;
  }
}

// Labels that are classes all of them, and 0; or NaN where some were none. For devices, where a bad label would end the process.
struct SafeLabels {
  at::Tensor labels;
  at::Tensor poison;  // fp32 scalar
};
[[nodiscard]] SafeLabels safe_labels(const at::Tensor& labels, std::int64_t classes, std::int64_t ignore_index);

}  // namespace millrace::nn::detail
