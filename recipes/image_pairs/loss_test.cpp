#include "recipes/image_pairs/loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace millrace::recipes::image_pairs {
namespace {

double mean_of(const LossTerm& term) { return term.sum.item<double>() / term.count.item<double>(); }

at::Tensor logarithms(const std::vector<float>& probabilities) { return at::tensor(probabilities).log(); }

TEST(PairLoss, LabelsOfTheOtherOrderAreExchanged) {
  const at::Tensor labels = at::tensor({0, 1, 2}, at::kLong);
  EXPECT_TRUE(labels_of_rows(labels, true).equal(at::tensor({0, 1, 1, 0, 2, 2}, at::kLong)));
  EXPECT_TRUE(labels_of_rows(labels, false).equal(labels));
}

// The logits f(a) - f(b), f(b) - f(a), c: a model that judges each image by itself gives mirrored answers in both orders.
TEST(PairLoss, AModelOfScoresIsConsistent) {
  const at::Tensor a = at::randn({16}), b = at::randn({16}), c = at::randn({16});
  const at::Tensor straight = at::stack({a - b, b - a, c}, 1), swapped = at::stack({b - a, a - b, c}, 1);
  const at::Tensor logits = at::stack({straight, swapped}, 1).view({32, 3});
  EXPECT_LT(mean_of(consistency_loss(logits)), 1e-7);
  EXPECT_TRUE(swap_agreement(logits).all().item<bool>());
}

TEST(PairLoss, AlwaysFirstIsNotConsistent) {
  const at::Tensor logits = at::tensor({2.0F, 0.0F, 0.0F}).expand({8, 3}).contiguous();
  EXPECT_GT(mean_of(consistency_loss(logits)), 0.5);
  EXPECT_FALSE(swap_agreement(logits).any().item<bool>());
}

// p = (.7, .2, .1) against q' = (.2, .7, .1) gives .5 ln 3.5.
TEST(PairLoss, ConsistencyHasItsValueByHand) {
  const at::Tensor logits = at::stack({logarithms({.7F, .2F, .1F}), logarithms({.7F, .2F, .1F})});
  EXPECT_NEAR(mean_of(consistency_loss(logits)), 0.5 * std::log(3.5), 1e-5);
}

TEST(PairLoss, ConsistencyIsTheSameFromEitherSideAndBearsCertainty) {
  at::Tensor logits = at::randn({10, 3}) * 3;
  const at::Tensor other = logits.view({5, 2, 3}).flip(1).contiguous().view({10, 3});
  EXPECT_NEAR(mean_of(consistency_loss(logits)), mean_of(consistency_loss(other)), 1e-5);
  logits = at::tensor({200.0F, 0.0F, 0.0F, 200.0F, 0.0F, 0.0F}).view({2, 3}).requires_grad_(true);
  const LossTerm term = consistency_loss(logits);
  term.sum.backward();
  EXPECT_TRUE(std::isfinite(term.sum.item<double>()));
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
}

// No constant logits may have a lower loss than this minimum, and the logits of the answers' own frequencies must reach it.
TEST(PairLoss, TheLeastOfABlindAnswerIsThatOfTheBestConstantLogits) {
  const std::array<std::int64_t, kAnswerKinds> pairs{5, 3, 8};
  std::vector<std::int64_t> labels;
  for (std::size_t answer = 0; answer < pairs.size(); ++answer)
    labels.insert(labels.end(), static_cast<std::size_t>(pairs.at(answer)), static_cast<std::int64_t>(answer));
  for (const bool doubled : {false, true}) {
    const at::Tensor rows = labels_of_rows(at::tensor(labels, at::kLong), doubled);
    double least = 1e9;
    for (int first = -40; first <= 40; ++first) {
      for (int second = -40; second <= 40; ++second) {
        const at::Tensor logits =
            at::tensor({static_cast<float>(first) / 20, static_cast<float>(second) / 20, 0.0F}).expand({rows.size(0), 3});
        least = std::min(least, mean_of(answer_loss(logits, rows, 0.5, 0.8, doubled)));
      }
    }
    const double blind = blind_answer_loss(pairs, 0.5, 0.8, doubled);
    EXPECT_LE(blind, least + 1e-6);
    EXPECT_NEAR(blind, least, 1e-3);
  }
  EXPECT_NEAR(blind_answer_loss({4, 4, 4}, 1, 1, true), std::log(3.0), 1e-12);
  EXPECT_EQ(blind_answer_loss({}, 1, 1, true), 0);
}

TEST(PairLoss, AnswersAreWeightedByKindAndOrder) {
  const at::Tensor logits = at::randn({12, 3});
  const at::Tensor labels = labels_of_rows(at::randint(0, 3, {6}, at::kLong), true);
  const at::Tensor rows = at::cross_entropy_loss(logits, labels, {}, /*reduction=*/0);
  EXPECT_TRUE(answer_loss_of_rows(logits, labels).allclose(rows, 1e-6, 1e-6));
  double sum = 0;
  for (std::int64_t i = 0; i < 12; ++i)
    sum += rows[i].item<double>() * (labels[i].item<std::int64_t>() == 2 ? 1.2 : 1.0) * (i % 2 == 1 ? 0.5 : 1.0);
  const LossTerm term = answer_loss(logits, labels, 1.2, 0.5, true);
  EXPECT_NEAR(mean_of(term), sum / 12, 1e-6);
  EXPECT_EQ(term.count.item<double>(), 12) << "weights do not count";
  EXPECT_NEAR(mean_of(answer_loss(at::zeros({12, 3}), labels, 1, 1, true)), std::log(3.0), 1e-6);
}

TEST(PairLoss, BadlyRoundedLogitsAreComparedInFp32) {
  const at::Tensor logits = at::randn({8, 3}).to(at::kBFloat16);
  EXPECT_EQ(consistency_loss(logits).sum.scalar_type(), at::kFloat);
  EXPECT_EQ(answer_loss(logits, at::zeros({8}, at::kLong), 1, 1, true).sum.scalar_type(), at::kFloat);
}

TEST(PairLoss, TheWeightRisesOverHalfTheRun) {
  const auto at = [](std::int64_t step) { return consistency_weight(step, 400, 5, 20, 0.5); };
  EXPECT_DOUBLE_EQ(at(0), 5);
  EXPECT_DOUBLE_EQ(at(100), 12.5);
  EXPECT_DOUBLE_EQ(at(200), 20);
  EXPECT_DOUBLE_EQ(at(400), 20);
  EXPECT_DOUBLE_EQ(consistency_weight(7, 0, 5, 20, 0.5), 20) << "a run without an end";
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
