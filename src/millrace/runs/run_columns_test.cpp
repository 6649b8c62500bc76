#include "millrace/runs/run_columns.h"

#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "millrace/base/error.h"

namespace millrace::runs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunRow row(const std::string& name, std::optional<double> step_ms = {}, const std::string& bound_by = "") {
  RunRow made;
  made.folder = name;
  made.recipe = "language_model";
  made.step = 1'000;
  made.loss = 1.25;
  made.state = "done: max_steps";
  made.when = "2026-01-02 03:04:05";
  made.step_ms = step_ms;
  made.rate = 309'233.6;
  made.rate_unit = "tokens";
  made.best = 1.2446;
  made.best_metric = "val_loss";
  made.findings = 2;
  made.bound_by = bound_by;
  return made;
}

std::vector<std::string> sorted(std::string_view key) {
  std::vector<RunRow> rows = {row("none"), row("slow", 20, "forward"), row("fast", 3, "backward"),
                              row("nan", std::numeric_limits<double>::quiet_NaN()), row("middle", 10, "data_wait")};
  sort_rows(rows, key);
  std::vector<std::string> names;
  for (const RunRow& each : rows) names.push_back(each.folder.string());
  return names;
}

TEST(RunColumns, SortBothWaysWithMissingValuesLast) {
  EXPECT_THAT(sorted("step_ms"), ElementsAre("fast", "middle", "slow", "none", "nan"));
  EXPECT_THAT(sorted("-step_ms"), ElementsAre("slow", "middle", "fast", "none", "nan"));
  EXPECT_THAT(sorted("bound_by"), ElementsAre("fast", "middle", "slow", "none", "nan"));
  EXPECT_THAT(sorted("-bound-by"), ElementsAre("slow", "middle", "fast", "none", "nan"));
  EXPECT_THAT(sorted("findings"), ElementsAre("none", "slow", "fast", "nan", "middle"));  // rows with equal values keep their
                                                                                          // order
}

TEST(RunColumns, UnknownOnesAreNamed) {
  try {
    static_cast<void>(columns_named("step,stepms", "--columns"));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message().what, HasSubstr("\"stepms\""));
    EXPECT_THAT(error.message().next, testing::AllOf(HasSubstr("step_ms"), HasSubstr("bound_by")));
  }
  std::vector<RunRow> rows;
  EXPECT_THROW(sort_rows(rows, "-"), UsageError);
  EXPECT_THROW(static_cast<void>(columns_named("", "--columns")), UsageError);
}

TEST(RunColumns, InTheOrderAskedFor) {
  const std::vector<RunRow> rows = {row("a", 6.25, "forward")};
  EXPECT_EQ(text_of(columns_named("bound_by,step_ms,rate", "--columns"), rows),
            "bound_by  step_ms           rate\nforward       6.2  309k tokens/s\n");
}

TEST(RunColumns, TheTableFitsAndKeepsWhatMatters) {
  for (const std::size_t length : {4U, 20U, 35U, 50U}) {
    const std::vector<RunRow> rows = {row(std::string(length, 'r'), 6.25, "forward"), row("b", 12345.6)};
    const std::string text = text_of(columns_within(100, rows), rows);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << text;
    for (const char* column : {"run", "step", "loss", "state"}) EXPECT_THAT(text, HasSubstr(column));
  }
  const std::vector<RunRow> short_rows = {row("a", 6.25)};
  EXPECT_THAT(text_of(columns_within(100, short_rows), short_rows), HasSubstr("step_ms  findings"));
  const std::vector<RunRow> long_rows = {row(std::string(300, 'r'))};
  EXPECT_THAT(text_of(columns_within(100, long_rows), long_rows), testing::AllOf(HasSubstr("loss"), Not(HasSubstr("rate"))));
}

}  // namespace
}  // namespace millrace::runs
