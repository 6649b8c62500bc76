// The loss of a classifier.
//
//   nn::CrossEntropy loss_{{.class_weights = {1, 1, 4}, .label_smoothing = 0.1}};  // a member of the recipe
//
//   objective.loss = [this](const Batch& batch, const StepContext&) {
//     const at::Tensor logits = model_->forward(batch["image"]);                   // [rows, classes]
//     return Loss{.terms = {loss_(logits, batch["label"])}, .outputs = {{"logits", logits}}};
//   };
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/nn/functional.h"

namespace millrace::nn {

struct CrossEntropyOptions {
  std::vector<double> class_weights = {};  // one for each class, 0 or more; empty: all are 1
  double label_smoothing = 0.0;            // 0..1: this share of a label is spread evenly over all classes
  std::int64_t ignore_index = -100;        // labels with this value are ignored
  Fused fused = {};                        // the switch kFusedLoss, which applies to losses without class weights and smoothing
};

// The term's sum over all rows that are not ignored is (1 - e) w_y (-log p_y) + e/K sum_c w_c (-log p_c), and its count is the
// sum of w_y. Here p is the softmax of a row, y the row's label, w the class weights, e the smoothing and K the number of
// classes. sum / count equals PyTorch's cross_entropy with reduction="mean". Computed in fp32.
class CrossEntropy {
 public:
  explicit CrossEntropy(CrossEntropyOptions options = {});  // throws ConfigError if a weight or the smoothing is out of range

  // Logits (..., K) of any float type; labels (...) int64. Does not wait for a device. Throws DataError, with shapes and types,
  // if logits and labels do not fit. On the CPU, throws RowError for an invalid label and names its row. On a device that check
  // would need a wait; there an invalid label makes the sum NaN, so that the step is skipped.
  [[nodiscard]] LossTerm operator()(const at::Tensor& logits, const at::Tensor& labels) const;

 private:
  [[nodiscard]] at::Tensor weights_for(const at::Tensor& logits) const;
  CrossEntropyOptions options_;
  mutable at::Tensor weights_;  // kept on the device of the latest logits, so that they are copied once
};

}  // namespace millrace::nn
