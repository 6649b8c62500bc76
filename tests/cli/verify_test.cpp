// `millrace doctor RECIPE --verify`: a run is set up, steps are made, nothing is left behind.
#include <gmock/gmock.h>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;

class Verify : public testing::Test {
 protected:
  [[nodiscard]] Result verify(std::vector<std::string> words) const {
    words.insert(words.begin(), {MILLRACE_PROGRAM, "doctor", "language_model", "--verify", "--preset=smoke"});
    return run(words, {.folder = root_.path(), .environment = {{"XDG_CACHE_HOME", root_.path().string()}}});
  }
  Scratch root_;
};

TEST_F(Verify, SetsARunUpAndSaysWhatItFound) {
  const Result result = verify({"--json", "--device.name=cpu"});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 3) << result.err;  // 3: this machine has other things to do
  const Json report = Json::parse(result.out);
  EXPECT_TRUE(report.at("ready").get<bool>());
  std::vector<std::string> names;
  for (const Json& check : report.at("checks")) {
    names.push_back(check.at("name").get<std::string>());
    EXPECT_FALSE(check.at("found").get<std::string>().empty());
    EXPECT_EQ(check.at("level") == "pass", check.at("next").get<std::string>().empty()) << check;
  }
  EXPECT_THAT(names,
              testing::ElementsAre("environment", "hardware", "number format", "model", "data loading", "training components",
                                   "training step 1", "training step 2", "memory", "use of the device"));
  EXPECT_THAT(report["checks"][3]["found"].get<std::string>(), HasSubstr("all on cpu"));
  EXPECT_THAT(report["checks"][7]["found"].get<std::string>(), HasSubstr("changed 35 of 35 trained tensors"));
  EXPECT_FALSE(std::filesystem::exists(root_.path() / "runs"));
}

TEST_F(Verify, SaysThatNothingLearns) {
  const Result result = verify({"--optim.learning_rate=1e-60", "--optim.weight_decay=0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("FAIL  training step 2"));
  EXPECT_THAT(result.out, HasSubstr("nothing learns: see optim.learning_rate"));
  EXPECT_THAT(result.out, HasSubstr("training would not work here: training step 2 fails"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("use of the device")));
}

TEST_F(Verify, SaysWhereANumberIsNotFinite) {
  const Result result = verify({"--optim.learning_rate=1e30", "--precision.dtype=fp32", "--optim.clip_norm=0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("FAIL  training step 2"));
}

TEST(DoctorSelf, IsNotAboutOneRun) {
  const Result result = run({MILLRACE_PROGRAM, "doctor", "--self", "runs/a"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("leave out --self or runs/a"));
}

}  // namespace
}  // namespace millrace::test
