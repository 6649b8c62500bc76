#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/metrics/board.h"
#include "tests/support/refusal.h"

namespace millrace::metrics {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor ids(std::initializer_list<std::int64_t> values) { return at::tensor(std::vector<std::int64_t>(values), at::kLong); }

TEST(BoardClasses, ATableIsTrueClassesByPredictedOnes) {
  Board board;
  const Classification how{.classes = {"cat", "dog", "owl"}};
  board.add_classification(ids({0, 1, 1, 0}), ids({0, 0, 1, 0}), how);
  board.add_classification(ids({1, 0}), ids({1, 1}).to(at::kInt), how);
  const Confusion table = board.tables().at(0);
  EXPECT_EQ(table.name, "confusion");
  EXPECT_THAT(table.classes, ElementsAre("cat", "dog", "owl"));
  EXPECT_THAT(table.counts, ElementsAre(2, 1, 0, 1, 2, 0, 0, 0, 0));
  EXPECT_EQ(table.count(0, 1), 1);
  const Means means = board.means();
  EXPECT_EQ(
      joined(means, " ", &Means::value_type::first),
      "accuracy balanced_accuracy macro_f1 recall/cat recall/dog recall/owl precision/cat precision/dog precision/owl f1/cat "
      "f1/dog f1/owl");
  EXPECT_DOUBLE_EQ(means.at("accuracy"), 4.0 / 6.0);
  EXPECT_DOUBLE_EQ(means.at("balanced_accuracy"), 2.0 / 3.0) << "no owl was there";
  EXPECT_DOUBLE_EQ(means.at("recall/cat"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(means.at("precision/dog"), 2.0 / 3.0);
  EXPECT_TRUE(std::isnan(means.at("recall/owl")));
  EXPECT_TRUE(means.shown_on_console("accuracy"));
  EXPECT_FALSE(means.shown_on_console("precision/dog"));
}

// The expected values were computed by hand; scikit-learn's f1_score gives the same.
TEST(BoardClasses, F1WeighsRecallAndPrecisionAndItsMeanIsOfTheClassesThatAreThere) {
  Board board;
  board.add_classification(ids({0, 0, 1, 1, 1, 1}), ids({0, 0, 0, 0, 1, 2}), {.classes = {"a", "b", "c", "nowhere"}});
  const Means means = board.means();
  EXPECT_DOUBLE_EQ(means.at("f1/a"), 4.0 / 6.0);
  EXPECT_DOUBLE_EQ(means.at("f1/b"), 2.0 / 5.0);
  EXPECT_DOUBLE_EQ(means.at("f1/c"), 0.0) << "it has a label, and was never predicted";
  EXPECT_TRUE(std::isnan(means.at("f1/nowhere")));
  EXPECT_DOUBLE_EQ(means.at("macro_f1"), (4.0 / 6.0 + 2.0 / 5.0) / 3);
  EXPECT_FALSE(means.shown_on_console("f1/a"));
  EXPECT_TRUE(means.shown_on_console("macro_f1"));
}

// Compares the counts with a check of each sample, and with LibTorch's topk.
TEST(BoardClasses, LogitsAreCountedByTheirLargest) {
  at::manual_seed(11);
  const at::Tensor logits = at::randn({40, 7, 5});  // any leading dimensions are allowed
  const at::Tensor labels = at::randint(0, 5, {40, 7}, at::kLong);
  labels.view({-1}).narrow(0, 0, 20).fill_(-100);
  Board board;
  board.add_classification(logits.narrow(0, 0, 31), labels.narrow(0, 0, 31), {.top_k = 3, .per_class = false});
  board.add_classification(logits.narrow(0, 31, 9), labels.narrow(0, 31, 9), {.top_k = 3, .per_class = false});
  board.add_classification(at::empty({0, 5}), ids({}), {.top_k = 3, .per_class = false});
  const at::Tensor counted = labels.ne(-100);
  const double all = counted.sum().item<double>();
  const double hits = logits.argmax(-1).eq(labels).sum().item<double>();
  const double near = std::get<1>(at::topk(logits, 3)).eq(labels.unsqueeze(-1)).any(-1).sum().item<double>();
  const Means means = board.means();
  EXPECT_EQ(means.size(), 4U);
  EXPECT_DOUBLE_EQ(means.at("accuracy"), hits / all);
  EXPECT_DOUBLE_EQ(means.at("top3_accuracy"), near / all);
  EXPECT_THAT(board.tables().at(0).classes, ElementsAre("0", "1", "2", "3", "4"));
  EXPECT_EQ(board.tables().at(0).total(), 260);
}

TEST(BoardClasses, EqualLogitsCountInTheOrderOfArgmaxAndNaNMakesNoShare) {
  Board board;
  board.add_classification(at::zeros({4, 4}), ids({0, 1, 2, 3}), {.top_k = 2});
  EXPECT_DOUBLE_EQ(board.means().at("accuracy"), 0.25);
  EXPECT_DOUBLE_EQ(board.means().at("top2_accuracy"), 0.5);
  at::Tensor logits = at::zeros({2, 4});
  logits[1][3] = std::numeric_limits<double>::quiet_NaN();
  board.add_classification(logits, ids({0, -100}), {.top_k = 2});
  EXPECT_DOUBLE_EQ(board.means().at("accuracy"), 0.4) << "a row that is ignored may hold anything";
  board.add_classification(logits, ids({0, 3}), {.top_k = 2});
  for (const auto& [name, value] : board.means()) EXPECT_TRUE(std::isnan(value)) << name;
  const Json state = board.state();
  Board again;
  again.load_state(SavedJson(state, "trainer"));
  EXPECT_TRUE(std::isnan(again.means().at("accuracy")));
}

TEST(BoardClasses, BooleansAreTwoClassesAndNamesStandSideBySide) {
  Board board;
  const at::Tensor truth = ids({1, 0, 1}).to(at::kBool);
  board.add_classification(ids({1, 1, 1}).to(at::kBool), truth, {.name = "left"});
  board.add_classification(ids({0, 1, 1}).to(at::kBool), truth, {.name = "right"});
  EXPECT_DOUBLE_EQ(board.means().at("left/recall/true"), 1.0);
  EXPECT_DOUBLE_EQ(board.means().at("right/accuracy"), 1.0 / 3.0);
  EXPECT_EQ(board.tables().at(1).name, "right/confusion");
  EXPECT_FALSE(board.means().shown_on_console("left/recall/true"));
}

TEST(BoardClasses, ALabelOutsideIsFoundWhenItIsRead) {
  const auto told = [](const at::Tensor& predicted, const at::Tensor& labels, const Classification& how) {
    Board board;
    board.add_classification(predicted, labels, how);
    std::string text = refusal([&] { (void)board.means(); });
    EXPECT_EQ(refusal([&] { (void)board.tables(); }), text);
    Board again;  // as on another rank, or after a snapshot
    again.load_state(SavedJson(board.state(), "trainer"));
    EXPECT_EQ(refusal([&] { (void)again.means(); }), text);
    return text;
  };
  EXPECT_THAT(told(at::zeros({3, 10}), ids({0, 12, 3}), {}),
              AllOf(HasSubstr("DataError  label 12 is not one of the 10 classes 0..9; 1 such values in all"),
                    HasSubstr("metric \"confusion\""), HasSubstr("number the classes from 0")));
  EXPECT_THAT(
      told(at::zeros({3, 10}), ids({-1, -100, -2}), {.name = "g"}),
      AllOf(HasSubstr("label -2 is not one of the 10 classes 0..9; 2 such values in all"), HasSubstr("metric \"g/confusion\"")));
  EXPECT_THAT(told(ids({0, 3}), ids({0, 1}), {.classes = {"a", "b"}}),
              HasSubstr("predicted class 3 is not one of the 2 classes 0..1"));
  EXPECT_EQ(told(at::zeros({2, 3}), ids({255, 0}), {.ignore_index = 255}), "accepted");
}

TEST(BoardClasses, WhatDoesNotFitIsShown) {
  const auto told = [](const at::Tensor& predicted, const at::Tensor& labels, const Classification& how = {}) {
    Board board;
    std::string text = refusal([&] { board.add_classification(predicted, labels, how); });
    EXPECT_TRUE(board.empty());
    return text;
  };
  EXPECT_THAT(told(at::zeros({8, 10}), at::zeros({8, 1}, at::kLong)),
              AllOf(HasSubstr("logits [8,10] need labels of shape [8], the labels have shape [8,1]"), HasSubstr("squeeze(1)")));
  EXPECT_THAT(told(at::zeros({2, 3, 4, 4}), at::zeros({2, 4, 4}, at::kLong)), HasSubstr("movedim(1, -1)"));
  EXPECT_THAT(told(at::zeros({8, 10}), at::zeros({8})), HasSubstr("labels are f32, but class ids are integers"));
  EXPECT_THAT(told(at::zeros({8, 10}), ids({1, 1, 1, 1, 1, 1, 1, 1}), {.classes = {"a", "b"}}),
              HasSubstr("2 names of classes were given, but the logits [8,10] have 10"));
  EXPECT_THAT(told(at::zeros({2, 1}), ids({0, 1})), HasSubstr("fewer than two classes"));
  EXPECT_THAT(told(ids({0, 1}), ids({0, 1})), HasSubstr("class ids alone do not tell the number of classes"));
  EXPECT_THAT(told(at::zeros({2, 3}), ids({0, 1}), {.top_k = 3}), HasSubstr("top_k = 3 does not fit 3 classes"));
  EXPECT_THAT(told(at::zeros({1, 5000}), ids({0})), HasSubstr("5,000 classes are more than the 4,096"));
  Board board;
  board.add_classification(at::zeros({1, 3}), ids({0}));
  EXPECT_THAT(refusal([&] {
                board.add_classification(at::zeros({1, 4}), ids({0}));
              }),
              HasSubstr("the classes or top_k differ from those of an earlier batch"));
}

}  // namespace
}  // namespace millrace::metrics
