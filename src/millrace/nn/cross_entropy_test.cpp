#include "millrace/nn/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "millrace/nn/detail/labels.h"
#include "tests/support/refusal.h"

namespace millrace::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<double> kWeights = {1.0, 0.25, 3.0, 0.0, 2.0};

// Computes the header's formula in fp64, one row and class at a time.
std::pair<double, double> by_hand(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options) {
  const at::Tensor logs = at::log_softmax(logits.detach().to(at::kDouble), 1);
  const auto weight = [&](std::int64_t i) { return options.class_weights.empty() ? 1.0 : options.class_weights[i]; };
  double sum = 0;
  double count = 0;
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    const auto label = labels[row].item<std::int64_t>();
    if (label == options.ignore_index) continue;
    count += weight(label);
    sum -= (1 - options.label_smoothing) * weight(label) * logs[row][label].item<double>();
    for (std::int64_t i = 0; i < logits.size(1); ++i)
      sum -= options.label_smoothing / static_cast<double>(logits.size(1)) * weight(i) * logs[row][i].item<double>();
  }
  return {sum, count};
}

TEST(CrossEntropy, AllOptionsAreEqualToLibTorchsMeanAndToTheFormula) {
  at::manual_seed(7);
  const at::Tensor logits = at::randn({23, 5}) * 3;
  const at::Tensor labels = at::randint(0, 5, {23}, at::kLong);
  for (const std::int64_t ignore : {std::int64_t{-100}, std::int64_t{2}}) {
    labels.narrow(0, 4, 3).fill_(ignore);
    for (const std::vector<double>& weights : {std::vector<double>{}, kWeights}) {
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        for (const bool fused : {true, false}) {
          const CrossEntropyOptions options{weights, smoothing, ignore, fused ? Fused() : Fused::plain()};
          SCOPED_TRACE(testing::Message() << "ignore " << ignore << ", weights " << weights.size() << ", smoothing "
                                          << smoothing);
          const at::Tensor mine = logits.clone().requires_grad_();
          const at::Tensor theirs = logits.clone().requires_grad_();
          const LossTerm term = CrossEntropy(options)(mine, labels);
          const auto weight = weights.empty() ? std::nullopt : std::optional<at::Tensor>(at::tensor(weights, at::kFloat));
          const at::Tensor expected = at::cross_entropy_loss(theirs, labels, weight, at::Reduction::Mean, ignore, smoothing);
          (term.sum / term.count).backward();
          expected.backward();
          EXPECT_NEAR((term.sum / term.count).item<double>(), expected.item<double>(), 1e-6);
          EXPECT_LT((mine.grad() - theirs.grad()).abs().max().item<double>(), 1e-6);
          EXPECT_FALSE(term.count.requires_grad());
          EXPECT_EQ(term.nominal_count, 23.0);
          const auto [sum, count] = by_hand(logits, labels, options);
          EXPECT_NEAR(term.sum.item<double>(), sum, 1e-6 * std::abs(sum));
          EXPECT_NEAR(term.count.item<double>(), count, 1e-6 * count);
        }
      }
    }
    labels.narrow(0, 4, 3).fill_(1);
  }
}

TEST(CrossEntropy, AnyLeadingShapeAndTypeOfFloatAndPartsAddUp) {
  at::manual_seed(8);
  const at::Tensor logits = at::randn({6, 4, 5}).to(at::kBFloat16);
  const at::Tensor labels = at::randint(0, 5, {6, 4}, at::kLong);
  const CrossEntropy loss({.class_weights = kWeights, .label_smoothing = 0.2});
  const LossTerm whole = loss(logits, labels);
  const LossTerm flat = loss(logits.to(at::kFloat).reshape({-1, 5}), labels.reshape({-1}));
  EXPECT_EQ(whole.sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(whole.sum, flat.sum));
  const LossTerm left = loss(logits.narrow(0, 0, 2), labels.narrow(0, 0, 2));
  const LossTerm right = loss(logits.narrow(0, 2, 4), labels.narrow(0, 2, 4));
  EXPECT_NEAR((left.sum + right.sum).item<double>(), whole.sum.item<double>(), 1e-4);
  EXPECT_NEAR((left.count + right.count).item<double>(), whole.count.item<double>(), 1e-5);
  const LossTerm none = loss(at::empty({0, 5}), at::empty({0}, at::kLong));
  EXPECT_EQ(none.sum.item<double>(), 0.0);
  EXPECT_EQ(none.count.item<double>(), 0.0);
}

TEST(CrossEntropy, SaysWhatDoesNotFit) {
  const CrossEntropy plain;
  const CrossEntropy smoothed({.label_smoothing = 0.1});
  const CrossEntropy weighted({.class_weights = std::vector<double>(10, 2.0)});
  for (const CrossEntropy* loss : {&plain, &smoothed, &weighted}) {
    const auto told = [&](const at::Tensor& logits, const at::Tensor& labels) {
      return refusal([&] { (void)(*loss)(logits, labels); });
    };
    EXPECT_THAT(told(at::zeros({32, 10}), at::zeros({32}, at::kInt)),
                AllOf(HasSubstr("DataError  the labels are i32[32], but a cross-entropy takes i64 (int64)"),
                      HasSubstr("convert them in prepare()")));
    EXPECT_THAT(told(at::zeros({32, 10}), at::zeros({32, 1}, at::kLong)),
                HasSubstr("logits [32,10] need labels of shape [32], the labels have shape [32,1]"));
    EXPECT_THAT(told(at::zeros({2, 10, 4, 4}), at::zeros({2, 4, 4}, at::kLong)), HasSubstr("movedim(1, -1)"));
    const at::Tensor labels = at::zeros({4}, at::kLong);
    labels[2].fill_(10);
    EXPECT_THAT(told(at::zeros({4, 10}), labels), AllOf(HasSubstr("label 10 of row 2 is not one of the 10 classes 0..9")));
    labels[2].fill_(-1);
    EXPECT_THAT(told(at::zeros({4, 10}), labels), HasSubstr("label -1 of row 2"));
    const at::Tensor picture = at::zeros({3, 2, 2}, at::kLong);
    picture[1][1][0].fill_(77);
    try {
      (void)(*loss)(at::zeros({3, 2, 2, 10}), picture);
      ADD_FAILURE() << "a label of 77 was accepted";
    } catch (const RowError& error) {
      EXPECT_EQ(error.row(), 1);
      EXPECT_THAT(error.what(), HasSubstr("label 77 of row 1"));
    }
  }
  EXPECT_THAT(refusal([&] {
                (void)weighted(at::zeros({4, 3}), at::zeros({4}, at::kLong));
              }),
              HasSubstr("10 class weights were given, but the logits have 3 classes"));
  EXPECT_THAT(refusal([] {
                const CrossEntropy loss({.class_weights = {1, -2}, .label_smoothing = 1.5});
              }),
              AllOf(HasSubstr("label_smoothing is 1.5, out of range"), HasSubstr("the weight of class 1 is -2, out of range")));
}

// The meta device has no values: any read-back from it throws.
TEST(CrossEntropy, WaitsForNoDevice) {
  const auto there = at::TensorOptions().device(at::kMeta);
  const at::Tensor logits = at::empty({4, 5}, there);
  const at::Tensor labels = at::empty({4}, there.dtype(at::kLong));
  for (const double smoothing : {0.0, 0.1}) {
    for (const std::vector<double>& weights : {std::vector<double>{}, kWeights})
      EXPECT_TRUE(CrossEntropy({.class_weights = weights, .label_smoothing = smoothing})(logits, labels).sum.is_meta());
  }
}

TEST(CrossEntropy, OnADeviceABadLabelIsPoison) {
  const at::Tensor labels = at::tensor(std::vector<std::int64_t>{0, 4, -100, 2}, at::kLong);
  const auto good = detail::safe_labels(labels, 5, -100);
  EXPECT_TRUE(at::equal(good.labels, labels));
  EXPECT_EQ(good.poison.item<float>(), 0.0F);
  const auto bad = detail::safe_labels(labels, 4, -100);
  EXPECT_TRUE(at::equal(bad.labels, at::tensor(std::vector<std::int64_t>{0, 0, -100, 2}, at::kLong)));
  EXPECT_TRUE(std::isnan(bad.poison.item<float>()));
}

}  // namespace
}  // namespace millrace::nn
