// `millrace bench RECIPE`: which switches are off at each stage, and that all stages are the same run.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;

Result called(std::vector<std::string> words) {
  words.insert(words.begin(), MILLRACE_PROGRAM);
  return run(words);
}

// Under any of its names a run of the user's stays as it is: the short runs have a folder of their own.
TEST(BenchRecipe, PutsTheGuidesAdviceOnOneByOne) {
  const Scratch scratch;
  const std::string mine = (scratch.path() / "mine").string();
  const Result result = called({"bench", "language_model", "--steps=3", "--rounds=1", "--precision.dtype=fp32", "--json",
                                "--run.dir=" + mine, "--run-dir=" + mine});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(mine));
  const Json stages = Json::parse(result.out).at("stages");
  ASSERT_GE(stages.size(), 4U);
  std::set<std::string> before;
  for (const Json& stage : stages) {
    const auto off = stage.at("off").get<std::set<std::string>>();
    if (!before.empty()) {
      EXPECT_LT(off.size(), before.size()) << stage;
      for (const std::string& row : off) EXPECT_TRUE(before.contains(row)) << row;
    }
    before = off;
    EXPECT_GT(stage.at("step_ms").get<double>(), 0.0);
    EXPECT_LT(stage.at("loss_apart_of_the_first").get<double>(), 1e-3) << stage;
  }
  EXPECT_TRUE(before.empty()) << "the last is everything on";
  EXPECT_TRUE(stages[0]["off"].size() > 30 && stages[0]["guide"] == "");
  EXPECT_EQ(stages[1]["guide"], "5-15 % of the forward");
  EXPECT_EQ(stages[stages.size() - 1]["guide"], "2-3x");
}

TEST(MaxBatch, TriesNothingAboveTheMost) {
  const Result result = called({"max-batch", "language_model", "--preset=smoke", "--from=9", "--most=3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--from 9 is above --most 3"));
}

TEST(BenchRecipe, MistakesAreThisCommands) {
  EXPECT_THAT(called({"bench", "language_model", "--steps=0"}).err, HasSubstr("flag --steps"));
  EXPECT_THAT(called({"bench", "language_modle"}).err, HasSubstr("there is no bench \"language_modle\""));
  EXPECT_THAT(called({"train", "language_model", "--preset=smoke", "--off=all", "--dry-run"}).out, HasSubstr("fp32"));
}

}  // namespace
}  // namespace millrace::test
