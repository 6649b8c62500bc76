#include "millrace/metrics/board.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "millrace/base/error.h"

namespace millrace::metrics {
namespace {

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
  EXPECT_EQ(board.means(), means);  // reading changes nothing
}

TEST(Board, ZeroCountIsNan) {
  Board board;
  board.add("x", 0.0, 0.0);
  EXPECT_TRUE(std::isnan(board.means().at("x")));
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
  at::Tensor loss = scalar(2);
  loss.set_requires_grad(true);
  board.add("x", loss, scalar(1));
  const at::Tensor plain = scalar(5);
  board.add("y", plain, scalar(1));
  plain.fill_(7);
  EXPECT_EQ(board.means().at("x"), 2.0);
  EXPECT_EQ(board.means().at("y"), 5.0);
}

TEST(Board, RefusesWhatIsNoScalar) {
  Board board;
  EXPECT_THROW(board.add("x", at::empty({2}), scalar(1)), InternalError);
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
  const Loss loss{.terms = {{.sum = scalar(3), .count = scalar(3), .report = LossReport{scalar(6), scalar(2), true}}}};
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
  board.add("loss", loss(5, 4, 0, 0));  // b has nothing here
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
    try {
      board.load_state(SavedJson(saved, "trainer"));
    } catch (const SnapshotError& error) {
      return error.message().what;
    }
    return std::string("accepted");
  };
  const std::string begin = "the snapshot's trainer part can't be used: ";
  EXPECT_EQ(refusal("[]"), begin + "it is [], not an object");
  EXPECT_EQ(refusal(R"({"a": 5})"), begin + "a is 5, not an object");
  EXPECT_EQ(refusal(R"({"a": {"sum": 1, "count": "x"}})"), begin + "a/count is \"x\", not a number");
  EXPECT_EQ(refusal(R"({"a": {"reading": "log_mean", "sums": [1]}})"), begin + "a/sums is [1], not a list of 2");
  EXPECT_EQ(refusal(R"({"a": {"reading": "max", "sums": [1, 2]}})"),
            begin + "a/reading is \"max\", not \"log_mean\", \"correlation\" or \"total\"");
  EXPECT_EQ(refusal(R"({"a": {"sum": 1, "count": 2}})"), "accepted");
}

// The meta device has no values: any read-back of it throws, so passing proves that add() waits for nothing.
TEST(Board, AddReadsNothingBack) {
  Board board;
  const at::Tensor there = at::empty({}, at::TensorOptions().device(at::kMeta));
  board.add("x", scalar(1), scalar(1));  // first seen on the CPU, then on a device: the sum moves there
  board.add("x", there, there);
  board.add("x", 1.0, 1.0);
  EXPECT_THROW((void)board.means(), std::exception);
}

int copies = 0;

TEST(Board, MeansReadsBackOnce) {
  Board board;
  for (int i = 0; i < 20; ++i) board.add("metric " + std::to_string(i), scalar(i), scalar(1));
  copies = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                                   const std::string name = function.name();
                                                   copies += name == "aten::item" || name == "aten::copy_" ? 1 : 0;
                                                   return std::unique_ptr<at::ObserverContext>();
                                                 }).scopes({at::RecordScope::FUNCTION}));
  EXPECT_EQ(board.means().at("metric 19"), 19.0);
  at::removeCallback(handle);
  EXPECT_LE(copies, 1);
}

}  // namespace
}  // namespace millrace::metrics
