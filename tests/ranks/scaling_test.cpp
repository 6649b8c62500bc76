// `millrace bench scaling` counts the work of runs of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rank_program.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;

std::vector<std::string> scaling_words(const RankProgram& program, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench", "scaling"};
  const std::vector<std::string> run = program.words("none", 1, 1);
  for (std::size_t i = 1; i < run.size(); ++i) {
    const std::string& word = run[i];
    if (word == "--run") {
      ++i;
    } else if (!word.starts_with("--train.") && !word.starts_with("--device.threads=")) {
      words.push_back(word);
    }
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Ranks, ScalingTellsWhatEachNumberOfRanksDoesAndSends) {
  RankProgram program("language_model");
  ASSERT_EQ(program.run(scaling_words(program, {"--ranks=1,2,3", "--rounds=1", "--steps=12", "--json"})), 0) << program.output();
  const std::string said = program.output();
  const Json result = Json::parse(said.substr(said.find('{')));
  ASSERT_EQ(result.at("ways").size(), 5U) << result.dump(1);
  EXPECT_THAT(result.at("left_out").at(0).get<std::string>(), HasSubstr("3 ranks: a batch of 8 can't be divided equally"));
  const double weights = 4.0 * 3520;  // bytes of this model's
  for (const Json& way : result.at("ways")) {
    const bool alone = way.at("ranks") == 1, strong = way.at("scaling") == "strong";
    EXPECT_EQ(way.at("batch_size").get<int>(), strong ? 8 / way.at("ranks").get<int>() : 8);
    EXPECT_GT(way.at("step_ms").get<double>(), 0);
    EXPECT_EQ(way.at("sent_bytes_per_step").get<double>(), alone ? 0 : weights);
    if (alone) {
      EXPECT_EQ(way.at("efficiency").get<double>(), 1);
    } else {
      EXPECT_NEAR(way.at("early_buckets_share").get<double>(), 11.0 / 12,
                  1e-9);  // one bucket; the first step sends after its pass
    }
  }
}

TEST(Ranks, ScalingNeedsABatchToShareOut) {
  RankProgram program("language_model");
  EXPECT_EQ(program.run(scaling_words(program, {"--ranks=1,x"})), 2) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("\"1,x\" is not a list of numbers of ranks"));
}

}  // namespace
}  // namespace millrace::test
