#include "millrace/runs/validations.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace millrace::runs {
namespace {

using testing::ElementsAre;

Json began(int step) { return {{"kind", "start"}, {"step", step}, {"time", 0.0}}; }

Json measured(int step, double loss, const Json& accuracy) {
  return {{"kind", "validation"}, {"step", step}, {"time", 1.0}, {"seconds", 0.5}, {"val_loss", loss}, {"accuracy", accuracy}};
}

const Json kMetrics = Json::parse(
    R"({"kind": "metrics", "step": 1, "judged": "accuracy", "order": ["val_loss", "accuracy"], "quiet": ["val_loss"],
        "best_is": {"accuracy": "highest", "val_loss": "lowest"}})");

RunStory story_of_lines(std::vector<std::vector<Json>> processes) {
  RunStory run;
  run.folder = "no such folder";
  run.processes = std::move(processes);
  return run;
}

TEST(Validations, EachMetricHasItsBestAndItsValueAtTheBestStep) {
  const Validations all =
      validations_of(story_of_lines({{began(0), measured(1, 2.0, 0.5), kMetrics, measured(2, 1.0, 0.8), measured(3, 3.0, 0.9),
                                      measured(4, 1.5, 0.9), measured(5, 1.0, "nan")}}));
  EXPECT_EQ(all.judged, "accuracy");
  ASSERT_EQ(all.metrics.size(), 2U);
  const MetricStory& accuracy = all.metrics[0];
  EXPECT_EQ(accuracy.name, "accuracy") << "the judged one is the first";
  EXPECT_EQ(accuracy.best->step, 3) << "the first of equal values";
  EXPECT_EQ(accuracy.best->value, 0.9);
  EXPECT_FALSE(accuracy.last.has_value()) << "it was not finite";
  EXPECT_EQ(all.best->step, 3);
  const MetricStory& loss = all.metrics[1];
  EXPECT_EQ(loss.best->step, 2);
  EXPECT_EQ(loss.at_best, 3.0);
  EXPECT_EQ(loss.last, 1.0);
  EXPECT_TRUE(loss.quiet);
  EXPECT_EQ(all.find("accuracy"), &all.metrics[0]);
  EXPECT_EQ(all.find("recall"), nullptr);
}

TEST(Validations, StepsThatAResumedRunRepeatedCountOnce) {
  const Validations all = validations_of(
      story_of_lines({{began(0), measured(2, 2.0, 0.5), kMetrics, measured(4, 9.0, 0.99)}, {began(3), measured(5, 1.0, 0.6)}}));
  EXPECT_EQ(all.best->step, 5) << "the value of step 4 is of steps that were taken back";
  EXPECT_EQ(all.metrics[0].best->value, 0.6);
}

TEST(Validations, ValuesOfAnEarlierVersionDoNotCount) {
  Json mended = measured(4, 1.0, 0.2);
  mended["metric_versions"] = {{"accuracy", 2}};
  const Validations all = validations_of(story_of_lines({{began(0), measured(2, 2.0, 0.5), kMetrics, mended}}));
  EXPECT_EQ(all.metrics[0].best->value, 0.2);
}

TEST(Validations, OfAnOlderRunOnlyTheLossesAndTheJudgedMetricHaveABest) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "validations-old-run";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"values": {"snapshot": {"best_metric": "accuracy", "best_is": "highest"}}})";
  RunStory run = story_of_lines({{began(0), measured(1, 2.0, 0.5), measured(2, 1.0, 0.4)}});
  run.folder = folder;
  for (Json& line : run.processes.front()) line["size"] = 3.5;
  run.summary = {{"metrics", {{"accuracy", {{"last", 0.4}}}, {"size", {{"quiet", true}}}}},
                 {"metrics_order", {"size", "accuracy"}}};
  const Validations all = validations_of(run);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(all.metrics.size(), 3U);
  EXPECT_EQ(all.judged, "accuracy");
  EXPECT_EQ(all.find("accuracy")->best->step, 1);
  EXPECT_EQ(all.find("val_loss")->best->step, 2);
  EXPECT_EQ(all.find("val_loss")->at_best, 2.0);
  EXPECT_FALSE(all.find("size")->best.has_value());
  EXPECT_EQ(all.find("size")->at_best, 3.5);
  EXPECT_TRUE(all.find("size")->quiet);
}

TEST(Validations, AFileMayHoldAnything) {
  for (
      const char* text :
      {R"([{"kind": "metrics", "judged": 3, "order": 5, "quiet": {"a": 1}, "best_is": ["x"]}])",
       R"([{"kind": "metrics", "judged": "a", "order": [1, "a"], "quiet": [2], "best_is": {"a": 7}}, {"kind": "validation", "step": "x"}])",
       R"([{"kind": "validation", "step": 1e300, "a": 1}, {"kind": "validation", "step": 1, "a": null, "b": [1]}, {"kind": 3}, {}])"}) {
    const Json lines = Json::parse(text);
    EXPECT_TRUE(validations_of(story_of_lines({{lines.begin(), lines.end()}})).metrics.empty()) << text;
  }
  EXPECT_TRUE(validations_of(story_of_lines({})).judged.empty());
}

}  // namespace
}  // namespace millrace::runs
