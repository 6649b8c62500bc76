// The best of each metric: in summary.json, on the page and in log.jsonl it is the same.
#include "millrace/runs/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/metrics/figure.h"
#include "millrace/runs/validations.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

// The values of each metric by step: of a step that a resumed run repeated the last.
std::map<std::string, std::map<std::int64_t, double>> logged(const std::filesystem::path& run) {
  std::map<std::string, std::map<std::int64_t, double>> values;
  for (const Json& line : toys::log_of(run, "validation")) {
    for (const auto& [name, value] : line.items()) {
      const bool is_metric = value.is_number() && name != "step" && name != "time" && name != "seconds" && name != "it_per_s";
      if (is_metric) values[name][line.at("step").get<std::int64_t>()] = value.get<double>();
    }
  }
  return values;
}

class Report : public testing::TestWithParam<bool> {};

// Each metric's best is that of the log, in the summary and on the page, in a run that was stopped between validations too.
TEST_P(Report, BestIsTheBestOfTheLog) {
  const toys::TemporaryFolder folder;
  const Json config = {{"train.epochs", 3},
                       {"train.validate_every", 2},
                       {"snapshot.every_steps", 1},
                       {"snapshot.best_metric", "absolute_error"},
                       {"snapshot.best_is", "highest"}};
  if (GetParam()) {
    int seen = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) == "loss" && seen++ == 17) throw std::runtime_error("stopped by the test");
    };
    EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), config), RecipeError);
    toys::at_point = nullptr;
  }
  const RunOutcome outcome = toys::run(toys::grouped_regression(), folder.path(), config);
  const auto values = logged(folder.path());
  const Json& judged = outcome.summary["best"];
  ASSERT_EQ(judged["metric"], "absolute_error");
  const runs::RunStory story = runs::read_story(folder.path());
  const runs::Validations validations = runs::validations_of(story);
  const std::string page = runs::report_page({&story, 1});
  EXPECT_EQ(validations.judged, "absolute_error");
  ASSERT_GE(outcome.summary["metrics"].size(), 2U);
  for (const auto& [name, metric] : outcome.summary["metrics"].items()) {
    const auto better = [&, highest = metric.at("best_is") == "highest"](const auto& a, const auto& b) {
      return highest ? a.second < b.second : b.second < a.second;
    };
    const auto& of_steps = values.at(name);
    ASSERT_GT(of_steps.size(), 5U);
    const auto best = std::max_element(of_steps.begin(), of_steps.end(), better);
    EXPECT_EQ(metric.at("best"), best->second) << name;
    EXPECT_EQ(metric.at("best_step"), best->first) << name;
    EXPECT_EQ(metric.at("at_best"), of_steps.at(judged["step"].get<std::int64_t>())) << name;
    const runs::MetricStory* const shown = validations.find(name);
    ASSERT_NE(shown, nullptr) << name;
    EXPECT_EQ(shown->best->value, best->second) << name;
    EXPECT_EQ(shown->best->step, static_cast<double>(best->first)) << name;
    EXPECT_THAT(page, HasSubstr("<b>" + metrics::figure_of(name, best->second) + "</b><span>" + name +
                                ", best</span><i>at step " + with_commas(best->first)));
  }
  EXPECT_NE(outcome.summary["metrics"]["val_loss"]["best_step"], judged["step"])
      << "the two must differ for this test to say something";
}

INSTANTIATE_TEST_SUITE_P(Runs, Report, testing::Bool(),
                         [](const auto& each) { return each.param ? "resumed" : "uninterrupted"; });

}  // namespace
}  // namespace millrace
