// The predicted memory of a smaller step against its real use; data.batch_size=auto in the real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

Json estimate(const std::string& recipe, std::vector<std::string> more) {
  std::vector<std::string> words = {MILLRACE_PROGRAM, "estimate", recipe, "--preset=smoke", "--precision.dtype=fp32", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const test::Result result = test::run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

class SmallerSteps : public ::testing::TestWithParam<const char*> {};

// Sizes at which samples, not the weights, are most of a step; in one layout, for each holds something else.
TEST_P(SmallerSteps, HoldsWhatWasPredicted) {
  const std::string recipe = GetParam();
  const std::vector<std::string> large =
      recipe == "cosmology" ? std::vector<std::string>{"--data.batch_size=8", "--recipe.ra_keep=64", "--device.layout=contiguous"}
                            : std::vector<std::string>{"--data.batch_size=64", "--recipe.seq_len=65"};
  const Json whole = estimate(recipe, large);
  ASSERT_EQ(whole.at("lighter").size(), 2U) << whole;
  for (const Json& one : whole["lighter"]) {
    std::vector<std::string> words = large;
    words.push_back("--" + one["setting"].get<std::string>());
    const Json real = estimate(recipe, words);
    EXPECT_NEAR(one["bytes"].get<double>() / real.at("plain_bytes").get<double>(), 1.0, 0.05) << one << " of " << recipe;
    EXPECT_LT(one["bytes"], whole["plain_bytes"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, SmallerSteps, ::testing::Values("language_model", "cosmology"),
                         [](const auto& recipe) { return std::string(recipe.param); });

std::vector<std::string> train(const test::Scratch& scratch, std::vector<std::string> more) {
  std::vector<std::string> words = {MILLRACE_PROGRAM,
                                    "train",
                                    "language_model",
                                    "--preset=smoke",
                                    "--precision.dtype=fp32",
                                    "--run",
                                    (scratch.path() / "run").string(),
                                    "--train.max_steps=2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A step that had to be cut says what would have gone through at once.
TEST(SmallerSteps, IsSaidWhereMemoryRanOut) {
  const test::Scratch scratch;
  const test::Result result = test::run(train(scratch, {"--data.batch_size=64", "--memory.limit=5MB"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              ::testing::ContainsRegex("a step holds [0-9.]+ MB of tensors now, [0-9.]+ MB if its batch went through "
                                       "at once; lighter, at once: data.batch_size=32 [0-9.]+ MB, recipe.seq_len=32 "))
      << result.out;
}

TEST(BatchSize, AutoIsTheLargestThatLeavesSixteenBatches) {
  const test::Scratch scratch;
  const test::Result first = test::run(train(scratch, {"--data.batch_size=auto"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("the largest that ran whole steps; larger ones leave less than 16 batches an epoch"));
  const Json config = Json::parse(test::read_text(scratch.path() / "run" / "config.json"), nullptr, false);
  ASSERT_TRUE(config.dump().find("\"batch_size\":\"auto\"") == std::string::npos);
  const test::Result more = test::run(train(scratch, {"--data.batch_size=auto", "--train.max_steps=3"}));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("as the run in")) << "a run that goes on keeps its batches";
}

}  // namespace
}  // namespace millrace
