// Runs on a real text, minutes each; skipped where the text is absent. learning_test.cpp is the twin on made text.
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "runs.h"

namespace millrace::recipes::language_model {
namespace {

class RealText : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(tinyshakespeare())) GTEST_SKIP() << "shared/data/text/tinyshakespeare.txt is not here";
    values_ = {{"recipe.sources", {tinyshakespeare().string()}}};
  }
  Json values_;
};

TEST_F(RealText, TestModelLearnsWords) {
  values_.update({{"recipe.vocab_from", "first_50000"}, {"train.max_steps", 300}, {"train.validate_every", 100}});
  const auto folder = test_folder();
  Json short_run = values_;
  short_run["train.max_steps"] = 100;
  EXPECT_LT(metric(train("test", short_run, folder / "short"), "val_loss"), 2.75);
  const RunOutcome outcome = train("test", values_, folder / "whole");
  EXPECT_LT(metric(outcome, "val_loss"), 2.40);
  EXPECT_EQ(outcome.summary.at("parameters"), 401'920);
}

TEST_F(RealText, NanoReachesThePublishedLoss) {
  const RunOutcome outcome = train("nano", values_, test_folder());
  EXPECT_EQ(outcome.summary.at("parameters"), 826'624);
  EXPECT_LE(metric(outcome, "val_loss"), 1.88);
}

}  // namespace
}  // namespace millrace::recipes::language_model
