// The losses of pairs that are judged in both orders, as terms of a sum and a count: the trainer divides the sum by the count
// over the global batch of a step. If `doubled`, row 2 i is pair i as (A, B) and row 2 i + 1 is the same pair as (B, A).
// Otherwise each row is a pair. The answers are First = 0, Second = 1, Similar = 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>

#include "millrace/core/batch.h"

namespace millrace::recipes::image_pairs {

inline constexpr std::int64_t kAnswerKinds = 3;
[[nodiscard]] const std::array<std::string, kAnswerKinds>& answer_names();  // "First", "Second", "Similar"

// The label of each row. `labels` has the label of each pair: (n), int64. If `doubled`, each pair has two rows: l0, l0 with
// First and Second exchanged, l1, …
[[nodiscard]] at::Tensor labels_of_rows(const at::Tensor& labels, bool doubled);
// The logits (n, 3) with the columns of First and Second exchanged.
[[nodiscard]] at::Tensor mirrored(const at::Tensor& logits);

// The cross-entropy of each row, (n) fp32, without weights.
[[nodiscard]] at::Tensor answer_loss_of_rows(const at::Tensor& logits, const at::Tensor& labels);

// The mean over rows of weight * answer_loss_of_rows(), in fp32. The weight is `similar` for rows whose label is Similar,
// otherwise 1; rows (B, A) also get the factor `swapped`.
[[nodiscard]] LossTerm answer_loss(const at::Tensor& logits, const at::Tensor& labels, double similar, double swapped,
                                   bool doubled);

// The lowest answer_loss() of an answer that does not depend on the images. `pairs`: the number of pairs with each label.
// Returns 0 if there are no pairs.
[[nodiscard]] double blind_answer_loss(const std::array<std::int64_t, kAnswerKinds>& pairs, double similar, double swapped,
                                       bool doubled);

// How much the answers to a pair's two rows differ. With p and q the softmax of the rows and q' = q mirrored: (KL(p|q') +
// KL(q'|p)) / 2, as a mean over pairs. In the logarithms, probabilities are at least 1e-8. Computed in fp32, also under
// autocast, because rounding in bf16 is as large as the difference that is measured.
[[nodiscard]] LossTerm consistency_loss(const at::Tensor& logits);

// The weight of consistency_loss() after `step` of `total` steps. The weight rises from `start` to `end` during the first `ramp`
// share of the steps. If total = 0, the weight is `end`.
[[nodiscard]] double consistency_weight(std::int64_t step, std::int64_t total, double start, double end, double ramp);

// (n) bool: true if the answers to a pair's two rows are mirror images of each other.
[[nodiscard]] at::Tensor swap_agreement(const at::Tensor& logits);

}  // namespace millrace::recipes::image_pairs
