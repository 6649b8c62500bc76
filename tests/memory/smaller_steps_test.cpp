// The predicted memory of a smaller step against its real use; data.batch_size=auto in the real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
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
                                    "--device.kernels=ours",
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
              ::testing::ContainsRegex("a step holds [0-9.]+ MB of tensors now, and would hold [0-9.]+ MB without "
                                       "micro-batches. With one of these settings a step needs less memory, even without "
                                       "micro-batches: data.batch_size=32 [0-9.]+ MB, recipe.seq_len=32 "))
      << result.out;
}

struct Sizes {
  std::int64_t batch_size = 0, samples = 0;
};
Sizes sizes_in(std::string out) {
  out.erase(std::remove(out.begin(), out.end(), ','), out.end());
  std::smatch size, samples;
  if (!std::regex_search(out, size, std::regex("data\\.batch_size ([0-9]+): the largest that ran whole steps")) ||
      !std::regex_search(out, samples, std::regex("([0-9]+) samples an epoch")))
    return {};
  return {std::stoll(size[1]), std::stoll(samples[1])};
}

TEST(BatchSize, AutoIsTheLargestThatLeavesSixteenBatches) {
  const test::Scratch scratch;
  const test::Result first = test::run(train(scratch, {"--data.batch_size=auto"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("the largest that ran whole steps; twice the size leaves fewer than 16 batches an epoch"));
  const Sizes chosen = sizes_in(first.out);
  EXPECT_GE(chosen.samples, 16 * chosen.batch_size) << first.out;
  EXPECT_LT(chosen.samples, 16 * 2 * chosen.batch_size) << "sizes are doubled";
  const Json config = Json::parse(test::read_text(scratch.path() / "run" / "config.json"));
  EXPECT_EQ(config["values"]["data"]["batch_size"], chosen.batch_size);
  const test::Result more = test::run(train(scratch, {"--data.batch_size=auto", "--train.max_steps=3"}));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("as the run in")) << "a run that goes on keeps its batches";
  const test::Scratch other;
  const test::Result small = test::run(train(other, {"--data.batch_size=auto", "--memory.limit=5MB"}));
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.out, HasSubstr("the largest that ran whole steps; a larger one runs out of memory"));
  EXPECT_LT(sizes_in(small.out).batch_size, chosen.batch_size);
  EXPECT_GT(sizes_in(small.out).batch_size, 0);
}

}  // namespace
}  // namespace millrace
