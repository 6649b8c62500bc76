#include "millrace/runs/earlier_runs.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace millrace::runs {
namespace {

Likeness likeness() {
  return {.recipe = "toy",
          .config = {{"optim", {{"learning_rate", 0.1}}},
                     {"train", {{"seed", 1}, {"off", Json::array()}}},
                     {"data", {{"dir", "x"}, {"batch_size", 4}}},
                     {"run", {{"dir", "a"}}}},
          .data = "abc",
          .machine = {{"cpu", "one"}}};
}

TEST(EarlierRuns, ALikeRunMayHaveAnotherNameLengthAndSeedButNoOtherStep) {
  const std::string one = likeness().digest();
  Likeness other = likeness();
  other.config["train"]["seed"] = 2;
  other.config["train"]["max_steps"] = 500;
  other.config["run"]["dir"] = "b";
  other.config["data"]["dir"] = "elsewhere";
  EXPECT_EQ(other.digest(), one);
  other.config["optim"]["learning_rate"] = 0.2;
  EXPECT_NE(other.digest(), one);
  other = likeness();
  other.machine["cpu"] = "another";
  EXPECT_NE(other.digest(), one);
  other = likeness();
  other.data = "d";
  EXPECT_NE(other.digest(), one);
}

TEST(EarlierRuns, FinishedLikeRunsBesideThisOneAreRead) {
  const std::filesystem::path root = testing::TempDir() + "earlier-runs-" + std::to_string(::getpid());
  const std::string digest = likeness().digest();
  const auto put = [&](const std::string& name, const Json& changed) {
    Json summary = {
        {"likeness", digest}, {"exit_reason", "epochs"}, {"steps", 100}, {"others", 0.01}, {"step_ms", {{"p50", 10}}}};
    summary.update(changed);
    std::filesystem::create_directories(root / name);
    std::ofstream(root / name / "summary.json") << summary.dump();
  };
  put("now", Json::object());
  put("a", Json::object());
  put("b", {{"step_ms", {{"p50", 12}}}});
  put("other", {{"likeness", "another"}});
  put("stopped", {{"exit_reason", "signal"}});
  put("short", {{"steps", 10}});
  put("busy", {{"others", 0.3}});
  put("odd", {{"step_ms", "x"}});
  std::filesystem::create_directories(root / "bad");
  std::ofstream(root / "bad/summary.json") << "{\"likeness\":";
  const doctor::Evidence::Earlier earlier = earlier_runs(root / "now", digest);
  EXPECT_THAT(earlier.step_ms, testing::UnorderedElementsAre(10, 12));
  EXPECT_THAT(earlier.newest, testing::AnyOf(testing::EndsWith("/a"), testing::EndsWith("/b")));
  EXPECT_TRUE(earlier_runs(root / "nowhere/run", digest).step_ms.empty());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace millrace::runs
