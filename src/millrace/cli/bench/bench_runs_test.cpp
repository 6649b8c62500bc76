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

}  // namespace
}  // namespace millrace::cli
