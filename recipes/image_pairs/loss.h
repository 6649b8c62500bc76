// The losses of pairs judged in both orders, as terms: the trainer divides a sum by its count over the global batch of a step.
// Rows come in twos: row 2 i is pair i as (A, B), row 2 i + 1 the same pair as (B, A); or, if not doubled, each row is a pair.
// The answers are First 0, Second 1, Similar 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>

#include "millrace/core/batch.h"

namespace millrace::recipes::image_pairs {

inline constexpr std::int64_t kAnswerKinds = 3;
[[nodiscard]] const std::array<std::string, kAnswerKinds>& answer_names();  // "First", "Second", "Similar"

// Labels of rows from labels (n) int64 of pairs: l0, l0 with First and Second exchanged, l1, …
[[nodiscard]] at::Tensor labels_of_rows(const at::Tensor& labels, bool doubled);
// (n, 3) with the columns of First and Second exchanged.
[[nodiscard]] at::Tensor mirrored(const at::Tensor& logits);

// Cross-entropy of each row (n), without weights. fp32.
[[nodiscard]] at::Tensor answer_loss_of_rows(const at::Tensor& logits, const at::Tensor& labels);

// The mean over rows of answer_loss_of_rows(), times `similar` where the label is Similar and times `swapped` in rows (B, A).
// fp32.
[[nodiscard]] LossTerm answer_loss(const at::Tensor& logits, const at::Tensor& labels, double similar, double swapped,
                                   bool doubled);

// The lowest answer_loss() of an answer that ignores the images, over rows of pairs with these counts of each label. 0 without
// pairs.
[[nodiscard]] double blind_answer_loss(const std::array<std::int64_t, kAnswerKinds>& pairs, double similar, double swapped,
                                       bool doubled);

// With p and q the softmax of a pair's two rows and q' = q mirrored: (KL(p|q') + KL(q'|p)) / 2, a mean over pairs; probabilities
// within the logarithms are at least 1e-8. fp32 also under autocast: rounding in bf16 is as large as the measured difference.
[[nodiscard]] LossTerm consistency_loss(const at::Tensor& logits);

// Weight of consistency_loss() after `step` of `total` steps: rises from `start` to `end` over the first share `ramp` of them;
// total = 0: `end`.
[[nodiscard]] double consistency_weight(std::int64_t step, std::int64_t total, double start, double end, double ramp);

// (n) bool: whether the answers to a pair's two rows are mirror images of each other.
[[nodiscard]] at::Tensor swap_agreement(const at::Tensor& logits);

}  // namespace millrace::recipes::image_pairs
