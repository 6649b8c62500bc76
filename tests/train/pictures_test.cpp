// Pictures keep their step and are bounded in number; training batches are measured on request; data that is kept for a test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/pictures.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct DrawnConfig {
  std::int64_t tested = 0;
  static consteval auto fields() { return std::tuple{config::field<&DrawnConfig::tested>("Test samples.")}; }
};

struct DrawnSections {
  DrawnConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&DrawnSections::toy>("The toy.")}; }
};

data::Pipeline constant(std::int64_t rows, float y) {
  const auto size = static_cast<std::size_t>(rows);
  return data::single(std::make_shared<data::MemorySource>(std::vector{
      data::memory_array("x", {1}, std::vector<float>(size, 0.5F)), data::memory_array("y", {1}, std::vector<float>(size, y))}));
}

class Drawn final : public Recipe {
 public:
  Drawn(const DrawnSections& sections, const Context& context) : toy_(sections.toy), optim_(context.config->optim) {}
  data::Pipeline data(Split) override { return constant(16, 1.0F); }
  data::Pipeline test_data() override { return toy_.tested == 0 ? data::Pipeline{} : constant(toy_.tested, 3.0F); }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    return {{.optim = optim_, .loss = [this](const Batch& batch, const StepContext&) {
               const at::Tensor error = net_(batch["x"]) - batch["y"];
               const at::Tensor count = at::full({}, static_cast<double>(error.numel()));
               return Loss{.terms = {{.sum = error.square().sum(), .count = count, .nominal_count = 4}},
                           .outputs = {{"error", error}}};
             }}};
  }
  void begin_validation() override { rows_ = 0; }
  void end_validation(metrics::Board& board) override { board.add("rows_of_a_pass", static_cast<double>(rows_), 1.0); }
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    if (batch.split() == Split::validation) rows_ += batch.rows();
    const at::Tensor& error = result.outputs().at("error");
    board.add_mean("mae", error.abs());
    board.add_mean("detail/mse", error.square());
    board.add_classification(error > 0, error > 0, {.name = "sign"});
    board.quiet("detail/*");
  }
  std::vector<Picture> draw() override { return {{.name = "dot", .width = 1, .height = 1, .rgb = std::vector<std::uint8_t>(3)}}; }

 private:
  DrawnConfig toy_;
  optim::OptimConfig optim_;
  torch::nn::Linear net_ = torch::nn::Linear(1, 1);
  std::int64_t rows_ = 0;  // of the validation under way
};

Entry drawn() {
  Entry row = entry_of<Drawn, DrawnSections>("drawn", "A toy.");
  row.defaults = {{"data.batch_size", 4}, {"precision.dtype", "fp32"}, {"train.validate_every", 1}, {"train.epochs", 0}};
  return row;
}

std::vector<std::string> pictures_in(const std::filesystem::path& run) {
  std::vector<std::string> names;
  if (!std::filesystem::exists(run / "pictures")) return names;
  for (const auto& file : std::filesystem::directory_iterator(run / "pictures")) names.push_back(file.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST(StepsToDrop, LeavesTheFirstTheLastAndAnEvenSpread) {
  EXPECT_THAT(steps_to_drop({1, 2, 3}, 3), IsEmpty());
  EXPECT_THAT(steps_to_drop({10, 20, 30, 35, 40}, 4), ElementsAre(35));
  EXPECT_THAT(steps_to_drop({10, 20, 30}, 1), ElementsAre(20, 10));
  EXPECT_THAT(steps_to_drop({10, 20}, 0), ElementsAre(10, 20));
  std::vector<std::int64_t> kept;
  for (std::int64_t step = 1; step <= 1000; ++step) {
    kept.push_back(step);
    for (const std::int64_t dropped : steps_to_drop(kept, 5)) std::erase(kept, dropped);
  }
  ASSERT_EQ(kept.size(), 5U);
  EXPECT_EQ(kept.front(), 1);
  EXPECT_EQ(kept.back(), 1000);
  for (std::size_t i = 1; i < kept.size(); ++i) EXPECT_LT(kept[i] - kept[i - 1], 1000 / 2) << "no gap spans half of the run";
}

TEST(Pictures, KeepTheirStepBoundedInNumber) {
  const toys::TemporaryFolder parent;
  const auto run = parent.path() / "run";
  (void)toys::run(drawn(), run, {{"train.max_steps", 7}, {"log.pictures_kept", 3}});
  EXPECT_THAT(pictures_in(run), ElementsAre("dot.png", "dot.step-00000001.png", "dot.step-00000003.png", "dot.step-00000007.png",
                                            "sign_confusion.png", "sign_confusion.step-00000001.png",
                                            "sign_confusion.step-00000003.png", "sign_confusion.step-00000007.png"));
  const auto other = parent.path() / "other";
  (void)toys::run(drawn(), other, {{"train.max_steps", 3}, {"log.pictures_kept", 0}});
  EXPECT_THAT(pictures_in(other), ElementsAre("dot.png", "sign_confusion.png"));
}

TEST(Pictures, OfStepsThatARunGivesUpGoWithThem) {
  const toys::TemporaryFolder parent;
  const auto run = parent.path() / "run";
  const auto to = [&](std::int64_t steps, const std::string& from) {
    (void)toys::run(drawn(), run, {{"train.max_steps", steps}, {"snapshot.every_steps", 2}, {"train.resume", from}});
  };
  to(6, "auto");
  to(5, (run / "snapshots" / "step-00000004").string());
  const std::vector<std::string> now = pictures_in(run);
  EXPECT_EQ(std::ranges::count(now, "dot.step-00000006.png"), 0) << testing::PrintToString(now);
  EXPECT_EQ(std::ranges::count(now, "dot.step-00000005.png"), 1) << testing::PrintToString(now);
  EXPECT_THAT(pictures_in(run / "branches" / "step-00000006"),
              ElementsAre("dot.step-00000005.png", "dot.step-00000006.png", "sign_confusion.step-00000005.png",
                          "sign_confusion.step-00000006.png"));
}

class Dots final : public Recipe {
 public:
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override { return {}; }
  std::vector<Picture> draw() override { return {{.name = "dot", .width = 1, .height = 1, .rgb = std::vector<std::uint8_t>(3)}}; }

 private:
  torch::nn::Linear net_ = torch::nn::Linear(1, 1);
};

TEST(Pictures, OfTheRecipeIsNotReplacedByATableOfItsName) {
  Dots recipe;
  const metrics::Confusion own{.name = "dot", .classes = {"a", "b"}, .counts = {1, 0, 0, 1}};
  const metrics::Confusion other{.name = "left/confusion", .classes = {"a", "b"}, .counts = {1, 0, 0, 1}};
  const std::vector<Picture> pictures = pictures_of(recipe, {own, other}, "now");
  ASSERT_EQ(pictures.size(), 2U);
  EXPECT_EQ(pictures[0].width, 1) << "the recipe's";
  EXPECT_EQ(pictures[1].name, "left_confusion");
}

TEST(Pictures, AFileOfTheUserStaysAndEndsNoRun) {
  const toys::TemporaryFolder parent;
  const auto run = parent.path() / "run";
  (void)toys::run(drawn(), run, {{"train.max_steps", 1}, {"log.images", false}});
  std::filesystem::create_directories(run / "pictures");
  std::ofstream(run / "pictures" / "dot.png") << "mine";
  const RunOutcome resumed = toys::run(drawn(), run, {{"train.max_steps", 3}});
  EXPECT_EQ(resumed.summary["exit_reason"], "max_steps");
  EXPECT_EQ(resumed.summary["steps"], 3);
  EXPECT_EQ(Fs::real().read_file(run / "pictures" / "dot.png"), "mine");
  EXPECT_THAT(pictures_in(run), testing::Contains("sign_confusion.step-00000003.png")) << "the other pictures";
}

TEST(Metrics, WhatOnlyAWholePassTellsIsAMetricToo) {
  const toys::TemporaryFolder parent;
  (void)toys::run(drawn(), parent.path() / "run", {{"train.max_steps", 2}});
  const std::vector<Json> validations = toys::log_of(parent.path() / "run", "validation");
  ASSERT_EQ(validations.size(), 2U);
  for (const Json& validation : validations) EXPECT_EQ(validation.at("rows_of_a_pass"), 16.0);
}

TEST(TrainMetrics, StandInTheLogLineAndChangeNoBit) {
  const toys::TemporaryFolder parent;
  const auto train = [&](const char* name, bool measures, std::int64_t accumulate) {
    return toys::run(
        drawn(), parent.path() / name,
        {{"train.max_steps", 4}, {"log.every", 2}, {"log.train_metrics", measures}, {"optim.accumulate", accumulate}});
  };
  const RunOutcome without = train("without", false, 2);
  const RunOutcome with = train("with", true, 2);
  EXPECT_EQ(with.summary["state_sha256"], without.summary["state_sha256"]);
  const std::vector<Json> lines = toys::log_of(parent.path() / "with", "step");
  ASSERT_FALSE(lines.empty());
  for (const Json& line : lines) {
    EXPECT_NEAR(line.at("train/detail/mse").get<double>(), line.at("loss").get<double>(), 1e-6) << line;
    EXPECT_GT(line.at("train/mae").get<double>(), 0);
    EXPECT_EQ(line.at("train/sign/accuracy"), 1.0);
  }
  for (const Json& line : toys::log_of(parent.path() / "without", "step")) EXPECT_FALSE(line.contains("train/mae"));
}

// Sums of half a window are in a snapshot: the line after it is that of the uninterrupted run.
TEST(TrainMetrics, OfAWindowSurviveAStop) {
  const toys::TemporaryFolder parent;
  const auto train = [&](const char* name, std::int64_t steps) {
    (void)toys::run(drawn(), parent.path() / name, {{"train.max_steps", steps}, {"log.every", 4}, {"log.train_metrics", true}});
  };
  train("whole", 8);
  train("parts", 6);
  train("parts", 8);
  const auto last = [&](const char* name) {
    const std::vector<Json> lines = toys::log_of(parent.path() / name, "step");
    const auto found = std::find_if(lines.rbegin(), lines.rend(), [](const Json& line) { return line["step"] == 8; });
    return found == lines.rend() ? Json() : found->at("train/mae");
  };
  EXPECT_EQ(last("parts"), last("whole"));
}

TEST(TestSplit, IsJudgedByEvaluateAloneWithPictures) {
  const toys::TemporaryFolder folder;
  (void)toys::run(drawn(), folder.path(), {{"train.max_steps", 4}});
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded none = load_for_inference(drawn(), folder.path(), nullptr, Json::object(), console);
  try {
    (void)evaluate(none, console, EvaluatedSplit::test);
    ADD_FAILURE() << "there is no test data";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the recipe has no test data"));
  }
  Loaded loaded = load_for_inference(drawn(), folder.path(), nullptr, {{"toy.tested", 6}}, console);
  const Evaluation tested = evaluate(loaded, console, EvaluatedSplit::test, /*draws=*/true);
  const Evaluation validated = evaluate(loaded, console);
  EXPECT_THAT(validated.pictures, IsEmpty());
  ASSERT_EQ(tested.pictures.size(), 2U);
  EXPECT_EQ(tested.pictures[1].name, "sign_confusion");
  EXPECT_FALSE(tested.metrics.contains("val_loss"));
  EXPECT_NEAR(tested.metrics.at("test_loss"), tested.metrics.at("detail/mse"), 1e-6);
  EXPECT_GT(tested.metrics.at("mae"), validated.metrics.at("mae") + 1) << "the test's targets are 3, the validation's 1";
  EXPECT_FALSE(tested.metrics.shown_on_console("detail/mse"));
}

}  // namespace
}  // namespace millrace
