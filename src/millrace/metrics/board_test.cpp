#include "millrace/metrics/board.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "tests/support/refusal.h"

namespace millrace::metrics {
namespace {

using testing::HasSubstr;

at::Tensor scalar(double value, at::ScalarType dtype = at::kFloat) { return at::scalar_tensor(value, dtype); }

TEST(Board, MeansAreSumsOverCounts) {
  Board board;
  EXPECT_TRUE(board.empty());
  board.add("loss", scalar(6), scalar(2));
  board.add("loss", scalar(3), scalar(1));
  board.add("accuracy", 1.0, 4.0);
  board.add("accuracy", scalar(2, at::kBFloat16), scalar(4, at::kLong));
  const auto means = board.means();
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means.at("loss"), 3.0);
  EXPECT_EQ(means.at("accuracy"), 3.0 / 8.0);
  EXPECT_EQ(board.means(), means);  // reading does not change the board
}

TEST(Board, ZeroCountIsNan) {
  Board board;
  board.add("x", 0.0, 0.0);
  EXPECT_TRUE(std::isnan(board.means().at("x")));
}

// The board of a step that is not skipped is added to the board of the log line.
TEST(Board, TakesWhatAnotherBoardHolds) {
  const auto fill = [](Board& board, double x) {
    board.add("loss", x, 2);
    board.add_log("log", scalar(x), scalar(3));
    board.add_regression(at::arange(4, at::kDouble) * x, at::arange(4, at::kDouble), "fit");
    board.add("total", Loss{.terms = {{.sum = scalar(x), .count = scalar(1), .name = "a"},
                                      {.sum = scalar(2 * x), .count = scalar(4), .name = "b", .weight = 0.5}}});
    board.add_classification(at::arange(6).remainder(2), at::arange(6).remainder(3), {.classes = {"a", "b", "c"}});
    board.quiet("log");
  };
  Board together;
  Board parts;
  for (const double x : {1.5, 0.25}) {
    fill(together, x);
    Board part;
    fill(part, x);
    parts.add(part);
  }
  EXPECT_EQ(parts.state(), together.state());
  EXPECT_FALSE(parts.means().shown_on_console("log"));
  parts.add(Board());
  EXPECT_EQ(parts.state(), together.state());
  Board other;
  other.add_log("loss", scalar(1), scalar(1));
  EXPECT_THROW(parts.add(other), RecipeError);
}

TEST(Board, ResetForgets) {
  Board board;
  board.add("x", 1.0, 1.0);
  board.reset();
  EXPECT_TRUE(board.empty());
  EXPECT_TRUE(board.means().empty());
}

TEST(Board, AddsInDouble) {
  Board board;
  board.add("x", scalar(16777216.0), scalar(1));  // 2^24: adding 1 to it in float changes nothing
  for (int i = 0; i < 5; ++i) board.add("x", scalar(1), scalar(0));
  EXPECT_EQ(board.means().at("x"), 16777221.0);
}

TEST(Board, KeepsNoGraphAndNoReferenceToTheAddend) {
  Board board;
  // An autograd graph that is kept alive holds a reference to the weight.
  at::Tensor weight = at::arange(1, 7, at::kFloat).view({2, 3});
  weight.set_requires_grad(true);
  at::Tensor values = weight * weight;
  board.add("x", values.sum() / 45.5, scalar(1));
  board.add("loss", Loss{.terms = {{.sum = values.sum(), .count = scalar(1), .name = "a"},
                                   {.sum = values.sum(), .count = scalar(1), .name = "b"}}});
  board.add_log("log", values.sum(), scalar(1));
  board.add_mean("mean", values);
  board.add_mean("defined", values, values > 4);
  board.add_correlation("r", values, values + weight);
  board.add_regression(values, values + weight);
  board.add_classification(values, at::zeros({2}, at::kLong));
  board.add_bits_per_event("bits", at::ones({2, 3}), values, at::ones({2, 3}), "all");
  EXPECT_GT(weight.use_count(), 1U) << "the graph still lives";
  values = at::Tensor();
  EXPECT_EQ(weight.use_count(), 1U);
  const at::Tensor plain = scalar(5);
  board.add("y", plain, scalar(1));
  plain.fill_(7);
  EXPECT_EQ(board.means().at("x"), 2.0);
  EXPECT_EQ(board.means().at("y"), 5.0);
}

TEST(Board, RefusesWhatIsNoScalarByNameAndShape) {
  Board board;
  EXPECT_THROW(board.add("x", at::empty({2}), scalar(1)), RecipeError);
  const std::string text = refusal([&] { board.add("width", scalar(1), at::empty({2, 3})); });
  EXPECT_THAT(text, HasSubstr("the count has shape [2,3], expected a scalar"));
  EXPECT_THAT(text, HasSubstr("metric \"width\""));
  EXPECT_THAT(text, HasSubstr("add_mean()"));
  EXPECT_THAT(refusal([&] { board.add("width", at::Tensor(), scalar(1)); }), HasSubstr("the sum has shape undefined"));
  EXPECT_THAT(refusal([&] { board.add("val_loss", Loss{.terms = {{.sum = at::empty({4}), .count = scalar(1)}}}); }),
              testing::AllOf(HasSubstr("the sum has shape [4]"), HasSubstr("metric \"val_loss\"")));
  EXPECT_TRUE(board.empty()) << "what is refused leaves nothing";
}

TEST(Board, ANameIsOfOneKind) {
  Board board;
  board.add("x", 1.0, 1.0);
  EXPECT_THAT(
      refusal([&] { board.add_correlation("x", at::ones({2}), at::ones({2})); }),
      testing::AllOf(HasSubstr("the name is in use by a mean; a correlation was added under it"), HasSubstr("metric \"x\"")));
  board.add("accuracy", 1.0, 1.0);
  board.add_classification(at::zeros({2, 3}), at::zeros({2}, at::kLong));
  EXPECT_THAT(refusal([&] { (void)board.means(); }),
              testing::AllOf(HasSubstr("two metrics have this name"), HasSubstr("metric \"accuracy\"")));
}

TEST(Board, MeansAndRatesAreOfAllValues) {
  Board board;
  board.add_mean("mean", at::arange(6, at::kInt).view({2, 3}));
  board.add_mean("mean", at::full({2}, 7.5));
  board.add_rate("rate", at::arange(4).gt(2));
  board.add_rate("rate", at::ones({2, 2}, at::kBool));
  board.add_rate("rate", at::empty({0}, at::kBool));
  EXPECT_DOUBLE_EQ(board.means().at("mean"), 30.0 / 8.0);
  EXPECT_DOUBLE_EQ(board.means().at("rate"), 5.0 / 8.0);
  EXPECT_THAT(refusal([&] { board.add_rate("rate", at::ones({3})); }),
              HasSubstr("a rate counts true values, but f32[3] was given"));
  EXPECT_THAT(refusal([&] { (void)board.means().at("rat"); }), HasSubstr("there are mean, rate"));
}

TEST(Board, WhatHasNoNumberIsLeftOutAndCounted) {
  Board board;
  const at::Tensor values = at::tensor({3.0, std::numeric_limits<double>::infinity(), 5.0});
  board.add_mean("psnr", values, values.isfinite());
  EXPECT_DOUBLE_EQ(board.means().at("psnr"), 4.0);
  EXPECT_DOUBLE_EQ(board.means().at("psnr/left_out"), 1.0);
  EXPECT_TRUE(board.means().shown_on_console("psnr/left_out"));
  EXPECT_EQ(board.means().version_of("psnr"), (Means::MetricVersion{.number = 2, .moved = true}));
  const Json state = board.state();
  Board again;
  again.load_state(SavedJson(state, "trainer"));
  again.add(board);
  EXPECT_DOUBLE_EQ(again.means().at("psnr/left_out"), 2.0);
  Board all, none;
  all.add_mean("psnr", at::ones({2}), at::ones({2}, at::kBool));
  EXPECT_FALSE(all.means().shown_on_console("psnr/left_out"));
  EXPECT_EQ(all.means().version_of("psnr"), (Means::MetricVersion{.number = 2, .moved = false}));
  none.add_mean("psnr", at::ones({2}), at::zeros({2}, at::kBool));
  EXPECT_TRUE(std::isnan(none.means().at("psnr")));
  none.reset();
  none.add_mean("psnr", at::full({1}, std::numeric_limits<double>::quiet_NaN()), at::ones({1}, at::kBool));
  EXPECT_TRUE(std::isnan(none.means().at("psnr"))) << "what is marked counts";
  Board earlier;  // an earlier snapshot has a mean of all values
  earlier.add("psnr", 6.0, 2.0);
  earlier.add_mean("psnr", values, values.isfinite());
  EXPECT_DOUBLE_EQ(earlier.means().at("psnr"), 14.0 / 4.0);
  EXPECT_THAT(refusal([&] { board.add_mean("psnr", values, at::ones({2}, at::kBool)); }), HasSubstr("[3]"));
}

TEST(Board, RegressionFollowsTheFormulas) {
  at::manual_seed(3);
  const at::Tensor target = at::randn({30, 2}, at::kDouble) + 200;  // the mean is far above the spread
  const at::Tensor predicted = target + at::randn({30, 2}, at::kDouble) * 0.5;
  Board board;
  for (const std::int64_t first : {0, 10, 20}) board.add_regression(predicted.narrow(0, first, 10), target.narrow(0, first, 10));
  board.add_regression(predicted, at::full_like(target, 0.1), "flat");
  const Means means = board.means();
  const at::Tensor error = predicted - target;
  const at::Tensor a = predicted - predicted.mean();
  const at::Tensor b = target - target.mean();
  EXPECT_NEAR(means.at("mae"), error.abs().mean().item<double>(), 1e-12);
  EXPECT_NEAR(means.at("rmse"), error.square().mean().sqrt().item<double>(), 1e-12);
  EXPECT_NEAR(means.at("r2"), 1 - (error.square().sum() / b.square().sum()).item<double>(), 1e-9);
  EXPECT_NEAR(means.at("pearson"), ((a * b).sum() / (a.norm() * b.norm())).item<double>(), 1e-9);
  EXPECT_TRUE(std::isnan(means.at("flat/r2"))) << "all targets are equal";
  EXPECT_TRUE(std::isnan(means.at("flat/pearson")));
}

// Two units, with counts and rates of four bins. The mask keeps three of the bins for the second unit.
TEST(Board, BitsPerEventFollowTheFormula) {
  const at::Tensor y = at::randint(0, 4, {4, 2}).to(at::kFloat) + 0.5;
  const at::Tensor r = at::randn({4, 2}).exp();
  at::Tensor mask = at::ones({4, 2});
  mask[1][1] = 0.0;
  const auto gain = [&](std::int64_t u, const at::Tensor& rates) {
    double t = 0, n = 0, sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      t += mask[i][u].item<double>();
      n += mask[i][u].item<double>() * y[i][u].item<double>();
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      const double v = y[i][u].item<double>(), p = rates[i][u].item<double>();
      sum += mask[i][u].item<double>() * (v * std::log(p + 1e-8) - p - (v * std::log(n / t + 1e-8) - n / t));
    }
    return std::max(0.0, sum / n / std::log(2.0));
  };
  Board halves;
  for (const auto first : {0, 2}) {
    halves.add_bits_per_event("bps/a", y.narrow(0, first, 2), r.narrow(0, first, 2), mask.narrow(0, first, 2), "bps");
    halves.add_bits_per_event("bps/b", y.narrow(0, first, 2), y.narrow(0, first, 2), mask.narrow(0, first, 2), "bps");
  }
  const Means means = halves.means();
  EXPECT_NEAR(means.at("bps/a"), (gain(0, r) + gain(1, r)) / 2, 1e-6);
  EXPECT_NEAR(means.at("bps/b"), (gain(0, y) + gain(1, y)) / 2, 1e-6);
  EXPECT_GT(means.at("bps/b"), 0);
  EXPECT_NEAR(means.at("bps"), (means.at("bps/a") + means.at("bps/b")) / 2, 1e-12);
  EXPECT_FALSE(means.shown_on_console("bps/a"));
  EXPECT_TRUE(means.shown_on_console("bps"));
  Board again;
  const Json saved = halves.state();
  again.load_state(SavedJson(saved, "board"));
  EXPECT_EQ(again.means(), means);
  again.add(halves);
  EXPECT_NEAR(again.means().at("bps/a"), means.at("bps/a"), 1e-12);
  EXPECT_THROW(again.add_bits_per_event("bps/a", y.narrow(1, 0, 1), r.narrow(1, 0, 1), mask.narrow(1, 0, 1), "bps"), RecipeError);
  EXPECT_THROW(again.add_bits_per_event("bps/a", y, r.narrow(1, 0, 1), mask, "bps"), DataError);
}

TEST(Board, AUnitWithoutAnEventOrABinHasNoBitsAndCountsNowhere) {
  const at::Tensor y = at::tensor({0.0, 1.0, 2.0, 0.0, 3.0, 1.0, 0.0, 0.0, 2.0}, at::kDouble).reshape({3, 3});
  const at::Tensor r = at::full({3, 3}, 0.7, at::kDouble);
  at::Tensor mask = at::ones({3, 3}, at::kDouble);
  mask.select(1, 2).zero_();  // unit 0 has no event, unit 2 no bin
  Board board, alone;
  board.add_bits_per_event("bps/a", y, r, mask, "bps");
  const at::Tensor silent = at::zeros({3, 2}, at::kDouble);
  board.add_bits_per_event("bps/silent", silent, r.narrow(1, 0, 2), at::ones({3, 2}, at::kDouble), "bps");
  alone.add_bits_per_event("bps/a", y.narrow(1, 1, 1), y.narrow(1, 1, 1), mask.narrow(1, 1, 1), "bps");
  const Means means = board.means();
  EXPECT_EQ(means.at("bps/a"), 0) << "the second unit alone, whose rates are worse than its mean";
  EXPECT_TRUE(std::isnan(means.at("bps/silent")));
  EXPECT_EQ(means.at("bps"), 0) << "a name of which no unit counts is no part of the mean over names";
  EXPECT_EQ(means.at("bps/units"), 1);
  EXPECT_EQ(means.at("bps/units_left_out"), 4);
  EXPECT_EQ(means.at("bps/units_below_0"), 1);
  EXPECT_TRUE(means.shown_on_console("bps/units_left_out"));
  EXPECT_FALSE(means.shown_on_console("bps/units_below_0"));
  EXPECT_EQ(means.version_of("bps"), (Means::MetricVersion{.number = 2, .moved = true}));
  EXPECT_EQ(means.version_of("bps/units"), Means::MetricVersion{});
  const Means sound = alone.means();
  EXPECT_GT(sound.at("bps"), 0);
  EXPECT_FALSE(sound.shown_on_console("bps/units"));
  EXPECT_EQ(sound.version_of("bps"), (Means::MetricVersion{.number = 2, .moved = false}));
  Board only_silent;
  only_silent.add_bits_per_event("bps/s", silent, silent, at::ones({3, 2}, at::kDouble), "bps");
  EXPECT_TRUE(std::isnan(only_silent.means().at("bps")));
  Board broken;  // a NaN rate makes the result NaN, even if other units are left out
  broken.add_bits_per_event("bps/a", y, r * std::nan(""), mask, "bps");
  EXPECT_TRUE(std::isnan(broken.means().at("bps")));
}

TEST(Board, ShapesThatDoNotFitAreShown) {
  Board board;
  const auto regression = [&] { board.add_regression(at::zeros({8, 1}), at::zeros({8})); };
  EXPECT_THAT(refusal(regression), HasSubstr("the prediction has shape [8,1], but the target has shape [8]"));
  EXPECT_THROW(regression(), DataError);
  EXPECT_THAT(refusal([&] {
                board.add_correlation("corr", at::zeros({8}), at::zeros({8, 1}));
              }),
              testing::AllOf(HasSubstr("x has shape [8], but y has shape [8,1]"), HasSubstr("metric \"corr\"")));
}

TEST(Board, MeansKeepTheOrderOfAdditionAndQuietNamesAreMarked) {
  Board board;
  for (const char* name : {"z", "loss", "band/low", "a"}) board.add(name, 1.0, 1.0);
  board.quiet("band/*");
  board.quiet("z");
  Board again;
  again.load_state(SavedJson(board.state(), "trainer"));
  for (const Board* each : {&board, &again}) {
    const Means means = each->means();
    EXPECT_EQ(joined(means, " ", &Means::value_type::first), "z loss band/low a");
    EXPECT_FALSE(means.shown_on_console("band/low"));
    EXPECT_FALSE(means.shown_on_console("z"));
    EXPECT_TRUE(means.shown_on_console("zz"));
    EXPECT_TRUE(means.shown_on_console("loss"));
  }
}

// The agreement of one rank of two; the other rank's values are given.
class OfTwo final : public Agreement {
 public:
  explicit OfTwo(Json other) : other_(std::move(other)) {}
  [[nodiscard]] Ranks ranks() const override { return {0, 0, 2}; }
  [[nodiscard]] std::vector<Json> gather(Json mine) override { return {std::move(mine), other_}; }
  void sum(std::vector<at::Tensor>&) override {}

 private:
  Json other_;
};

void fill(Board& board, std::int64_t first, std::int64_t rows) {
  const auto count = static_cast<double>(rows);
  at::manual_seed(5);
  const at::Tensor logits = at::randn({20, 4}, at::kDouble).narrow(0, first, rows);
  const at::Tensor labels = at::randint(0, 4, {20}, at::kLong).narrow(0, first, rows);
  board.add("loss", Loss{.terms = {{.sum = logits.sum(), .count = scalar(count), .name = "a"},
                                   {.sum = logits.square().sum(), .count = scalar(2 * count), .name = "b", .weight = 0.5}}});
  board.add_rate("rate", logits.gt(0.5));
  board.add_regression(logits.select(1, 0), logits.select(1, 1));
  board.add_classification(logits, labels, {.classes = {"a", "b", "c", "d"}, .top_k = 2});
}

TEST(Board, RanksAddUpToOneProcess) {
  Board whole, left, right, empty;
  fill(whole, 0, 20);
  fill(left, 0, 13);
  fill(right, 13, 7);
  OfTwo agreement(right.state());
  left.sum_over(agreement);
  OfTwo with_all(left.state());
  empty.sum_over(with_all);  // a rank without a batch gets names, classes and order from the other rank
  for (const Board* board : {&left, &empty}) {
    const Means means = board->means();
    ASSERT_EQ(joined(means, " ", &Means::value_type::first), joined(whole.means(), " ", &Means::value_type::first));
    for (const auto& [name, value] : whole.means()) EXPECT_NEAR(means.at(name), value, 1e-12) << name;
    EXPECT_EQ(board->tables().at(0).counts, whole.tables().at(0).counts);
    EXPECT_FALSE(means.shown_on_console("recall/a"));
  }
}

TEST(Board, LogarithmsAndCorrelationsAreReadFromTheirSums) {
  Board board;
  board.add_log("log", scalar(1), scalar(4));
  board.add_log("log", scalar(7), scalar(4));  // log((1 + 7) / (4 + 4)), not the mean of two logarithms
  const at::Tensor x = at::arange(12, at::kFloat);
  const at::Tensor y = x * 2.0 + at::arange(12, at::kFloat).remainder(3);
  board.add_correlation("r", x.narrow(0, 0, 5), y.narrow(0, 0, 5));
  board.add_correlation("r", x.narrow(0, 5, 7), y.narrow(0, 5, 7));
  board.add_correlation("flat", x, at::zeros_like(x));
  const Loss loss{.terms = {{.sum = scalar(3), .count = scalar(3), .report = LossTerm::Report{scalar(6), scalar(2), true}}}};
  board.add("loss", loss);
  const at::Tensor a = x - x.mean();
  const at::Tensor b = y - y.mean();
  const double r = ((a * b).sum() / (a.norm() * b.norm())).item<double>();
  Board again;
  again.load_state(SavedJson(board.state(), "trainer"));
  for (const Board* each : {&board, &again}) {
    EXPECT_DOUBLE_EQ(each->means().at("log"), 0.0);
    EXPECT_NEAR(each->means().at("r"), r, 1e-6);
    EXPECT_TRUE(std::isnan(each->means().at("flat")));
    EXPECT_DOUBLE_EQ(each->means().at("loss"), std::log(3.0));
  }
}

TEST(Board, ALossOfSeveralTermsIsTheSumOfTheirWeightedMeans) {
  const auto loss = [](double a, double a_count, double b, double b_count) {
    return Loss{.terms = {{.sum = scalar(a), .count = scalar(a_count), .name = "a"},
                          {.sum = scalar(b), .count = scalar(b_count), .name = "b", .weight = 0.5}}};
  };
  Board board;
  board.add("loss", loss(1, 2, 3, 1));
  board.add("loss", loss(5, 4, 0, 0));  // term b has the count 0 here
  board.add("none", Loss{});
  board.add("nothing", loss(0, 0, 0, 0));
  Board again;
  again.load_state(SavedJson(board.state(), "trainer"));
  for (const Board* each : {&board, &again}) {
    const auto means = each->means();
    EXPECT_DOUBLE_EQ(means.at("loss/a"), 1.0);
    EXPECT_DOUBLE_EQ(means.at("loss/b"), 3.0);
    EXPECT_DOUBLE_EQ(means.at("loss"), 1.0 + 0.5 * 3.0);
    EXPECT_FALSE(means.contains("none"));
    EXPECT_TRUE(std::isnan(means.at("nothing")));
  }
}

TEST(Board, ASavedOneOfAnotherHandIsRefusedByName) {
  const auto refusal = [](const char* text) {
    const Json saved = Json::parse(text);
    Board board;
    return refusal_message<SnapshotError>([&] { board.load_state(SavedJson(saved, "trainer")); }).what;
  };
  const std::string begin = "the snapshot's trainer part can't be used: ";
  EXPECT_EQ(refusal("[]"), begin + "it is [], not an object");
  EXPECT_EQ(refusal(R"({"a": 5})"), begin + "a is 5, not an object");
  EXPECT_EQ(refusal(R"({"a": {"sum": 1, "count": "x"}})"), begin + "a/count is \"x\", not a number");
  EXPECT_EQ(refusal(R"({"a": {"reading": "log_mean", "sums": [1]}})"), begin + "a/sums is [1], not a list of 2");
  EXPECT_EQ(refusal(R"({"a": {"reading": "max", "sums": [1, 2]}})"),
            begin +
                "a/reading is \"max\", not \"mean\", \"log_mean\", \"root_mean\", \"defined_mean\", \"correlation\", "
                "\"determination\", "
                "\"total\", \"classification\", \"information\"");
  EXPECT_EQ(refusal(R"({"a": {"sum": 1, "count": 2}})"), "accepted") << "as snapshots of earlier versions have it";
  const auto table = [&](const std::string& other) { return refusal((R"({"quiet": [], "entries": [)" + other + "]}").c_str()); };
  const std::string good =
      R"({"name": "confusion", "reading": "classification", "prefix": "", "classes": ["a", "b"], "per_class": true, "top_k": 0,
          "counts": [3, 7], "hits": 0, "extremes": [0, 1, 0, 1]})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(table(good + "," + good), "accepted");
  EXPECT_EQ(table(with("[3, 7]", "[7, 7]")), begin + "entries/0/counts/0 is 7, not an integer >= 0 and <= 6");
  EXPECT_EQ(table(with("[3, 7]", "[3]")), begin + "entries/0/counts is [3], not pairs of cell and count");
  EXPECT_EQ(table(with(R"(["a", "b"])", "[]")), begin + "entries/0/classes is [], not a list of 1 to 4096 names");
  EXPECT_EQ(table(with(R"("prefix": "")", R"("prefix": "g")")),
            begin + R"(entries/0/name is "confusion", not its prefix followed by "confusion")");
  EXPECT_EQ(table(good + "," + with(R"(["a", "b"])", R"(["a", "c"])")),
            begin + R"(entries/1/classes is ["a","c"], not the classes of an earlier entry of the same name)");
  EXPECT_EQ(table(good + R"(,{"name": "confusion", "reading": "mean", "sums": [1, 2]})"),
            begin + "entries/1/reading is \"mean\", not the reading of an earlier entry of the same name");
}

// The meta device has no values, and any read-back from it throws. So the test proves that add() does not wait.
TEST(Board, AddReadsNothingBack) {
  Board board;
  const at::Tensor there = at::empty({}, at::TensorOptions().device(at::kMeta));
  board.add("x", scalar(1), scalar(1));  // the sum begins on the CPU and moves to the device of the next value
  board.add("x", there, there);
  board.add("x", 1.0, 1.0);
  const auto on_device = [](at::IntArrayRef sizes, at::ScalarType type) {
    return at::empty(sizes, at::TensorOptions().device(at::kMeta).dtype(type));
  };
  board.add_mean("mean", on_device({4}, at::kFloat));
  board.add_rate("rate", on_device({4}, at::kBool));
  board.add_correlation("corr", on_device({4}, at::kFloat), on_device({4}, at::kFloat));
  board.add_classification(on_device({4, 3}, at::kBFloat16), on_device({4}, at::kInt), {.top_k = 2});
  board.add_classification(on_device({4, 3}, at::kBFloat16), on_device({4}, at::kInt), {.top_k = 2});
  EXPECT_THROW((void)board.means(), std::exception);
}

int copies = 0;

TEST(Board, MeansReadsBackOnce) {
  Board board;
  for (int i = 0; i < 20; ++i) board.add("metric " + std::to_string(i), scalar(i), scalar(1));
  board.add_regression(at::randn({9}), at::randn({9}));
  board.add_classification(at::randn({9, 3}), at::zeros({9}, at::kLong), {.top_k = 2});
  copies = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                                   const std::string name = function.name();
                                                   copies += name == "aten::item" || name == "aten::copy_" ? 1 : 0;
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::FUNCTION}));
  EXPECT_EQ(board.means().at("metric 19"), 19.0);
  at::removeCallback(handle);
  EXPECT_LE(copies, 1 + 3) << "one from the device; counts of integers become doubles first";
}

TEST(Board, KnowsWhichValueIsTheBest) {
  Board board;
  const at::Tensor x = at::tensor({1.0, 2.0, 4.0}), y = at::tensor({1.0, 3.0, 4.0});
  board.add_regression(x, y, "left");
  board.add_classification(at::tensor({0, 1, 1}), at::tensor({0, 1, 0}), {.classes = {"cat", "dog"}});
  board.add_mean("size", x);
  board.add_mean("band/low", x);
  board.add_mean("band/high", x);
  board.lowest_is_best("band/*");
  board.highest_is_best("band/high");
  const LossTerm plain{.sum = at::scalar_tensor(2.0), .count = at::scalar_tensor(1.0)};
  board.add("val_loss", Loss{.terms = {plain}});
  board.highest_is_best("left/mae");  // the recipe's statement wins
  Board all;
  all.add(board);
  using BestIs = Means::BestIs;
  for (const Board* each : {&board, &all}) {
    const Means means = each->means();
    for (const char* name : {"left/r2", "left/pearson", "accuracy", "macro_f1", "recall/cat", "f1/dog", "band/high", "left/mae"})
      EXPECT_EQ(means.best_is_of(name), BestIs::highest) << name;
    for (const char* name : {"left/rmse", "val_loss", "band/low"}) EXPECT_EQ(means.best_is_of(name), BestIs::lowest) << name;
    for (const char* name : {"size", "accurac", "left"}) EXPECT_EQ(means.best_is_of(name), BestIs::unknown) << name;
  }
  board.reset();
  EXPECT_EQ(board.means().best_is_of("accuracy"), BestIs::unknown);
}

}  // namespace
}  // namespace millrace::metrics
