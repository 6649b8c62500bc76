#include "recipes/image_pairs/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::int64_t kSimilar = 2;

LossTerm mean_over(const at::Tensor& sum, std::int64_t count, std::string name) {
  const auto things = static_cast<double>(count);
  return {.sum = sum,
          .count = at::full({}, things, sum.options().requires_grad(false)),
          .nominal_count = std::max(things, 1.0),
          .name = std::move(name),
          .per_row = true};
}

}  // namespace

const std::array<std::string, kAnswerKinds>& answer_names() {
  static const std::array<std::string, kAnswerKinds> kNames = {"First", "Second", "Similar"};
  return kNames;
}

at::Tensor labels_of_rows(const at::Tensor& labels, bool doubled) {
  if (!doubled) return labels;
  return at::stack({labels, at::where(labels == kSimilar, labels, 1 - labels)}, 1).flatten();
}

at::Tensor mirrored(const at::Tensor& logits) {
  return at::stack({logits.select(1, 1), logits.select(1, 0), logits.select(1, 2)}, 1);
}

at::Tensor answer_loss_of_rows(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor logarithms = at::log_softmax(logits.to(at::kFloat), 1);
  return -logarithms.gather(1, labels.unsqueeze(1)).squeeze(1);
}

LossTerm answer_loss(const at::Tensor& logits, const at::Tensor& labels, double similar, double swapped, bool doubled) {
  const at::Tensor of_rows = answer_loss_of_rows(logits, labels);
  at::Tensor weights = at::ones(labels.sizes(), of_rows.options().requires_grad(false));
  weights = weights.masked_fill(labels == kSimilar, similar);
  if (doubled) weights.view({-1, 2}).select(1, 1).mul_(swapped);
  return mean_over((of_rows * weights).sum(), labels.size(0), "ce");
}

// By Gibbs' inequality the cross-entropy is lowest if the probabilities are proportional to the weighted numbers of the answers.
double blind_answer_loss(const std::array<std::int64_t, kAnswerKinds>& pairs, double similar, double swapped, bool doubled) {
  const auto count = [&](std::size_t answer) { return static_cast<double>(pairs.at(answer)); };
  std::array<double, kAnswerKinds> weights{count(0), count(1), similar * count(2)};
  if (doubled) weights = {weights[0] + swapped * weights[1], weights[1] + swapped * weights[0], (1 + swapped) * weights[2]};
  const double all = weights[0] + weights[1] + weights[2], rows = (count(0) + count(1) + count(2)) * (doubled ? 2 : 1);
  double sum = 0;
  for (const double weight : weights) sum -= weight > 0 ? weight * std::log(weight / all) : 0;
  return rows > 0 ? sum / rows : 0;
}

LossTerm consistency_loss(const at::Tensor& logits) {
  constexpr double kLeast = 1e-8;
  const at::Tensor rows = logits.to(at::kFloat).view({-1, 2, kAnswerKinds});
  const at::Tensor p = at::softmax(rows.select(1, 0), 1);
  const at::Tensor q = at::softmax(mirrored(rows.select(1, 1)), 1);
  const at::Tensor apart = p.clamp_min(kLeast).log() - q.clamp_min(kLeast).log();
  return mean_over(((p - q) * apart).sum() * 0.5, rows.size(0), "consistency");
}

double consistency_weight(std::int64_t step, std::int64_t total, double start, double end, double ramp) {
  if (total <= 0) return end;
  return start + (end - start) * std::min(1.0, static_cast<double>(step) / (ramp * static_cast<double>(total)));
}

at::Tensor swap_agreement(const at::Tensor& logits) {
  const at::Tensor rows = logits.view({-1, 2, kAnswerKinds});
  return rows.select(1, 0).argmax(1) == mirrored(rows.select(1, 1)).argmax(1);
}

}  // namespace millrace::recipes::image_pairs
