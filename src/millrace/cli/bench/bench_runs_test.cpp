#include "millrace/cli/bench/bench_runs.h"

#include <gmock/gmock.h>

namespace millrace::cli {
namespace {

TEST(PinChoices, TakesWhatATrialChoseAndAKeyCanName) {
  const Json config = {{"device", {{"layout", "auto"}, {"name", "auto"}}}, {"precision", {{"dtype", "auto"}}}};
  const auto choice = [](const char* option, const char* value, bool by_trial) {
    return Json{{"option", option}, {"value", value}, {"by_trial", by_trial}};
  };
  const Json summary = {{"choices",
                         {choice("device.layout", "channels_last", true), choice("precision.dtype", "bf16", true),
                          choice("device.name", "cpu", false), choice("kernels.weight_gradient.bf16", "ours", true),
                          choice("device.convolutions", "bf16", true), choice("layout", "x", true)}}};
  BenchRuns runs;
  pin_choices(runs, summary, config);
  EXPECT_THAT(runs.words, testing::ElementsAre("--device.layout=channels_last", "--precision.dtype=bf16"));
}

TEST(WordsOfRun, HoldAgainstTheUsersWords) {
  BenchRuns runs;
  runs.words = {"toy", "--run.dir=mine", "--train.off=recompute"};
  runs.folder = "scratch";
  EXPECT_THAT(words_of_run(runs, ""), testing::Not(testing::Contains(testing::StartsWith("--train.off=,"))));
  runs.off = {"recompute"};
  const std::vector<std::string> words = words_of_run(runs, "fused_norm,autocast");
  const auto last = [&](const std::string& key) {
    std::string found;
    for (const std::string& word : words) {
      if (word.starts_with("--" + key + "=")) found = word;
    }
    return found;
  };
  EXPECT_EQ(last("run.dir"), "--run.dir=scratch/run");
  EXPECT_EQ(last("train.off"), "--train.off=recompute,fused_norm,autocast");
  EXPECT_THAT(words,
              testing::Not(testing::Contains(testing::AnyOf(testing::StartsWith("--off"), testing::StartsWith("--run=")))));
}

}  // namespace
}  // namespace millrace::cli
