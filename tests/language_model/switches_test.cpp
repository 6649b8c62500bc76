// Every row of the switchboard in whole runs of the real program: off equals on in the way the row declares. Child processes,
// because some rows hold for a process.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace {
namespace {

// Rows that only matter in bf16 are compared there, all others in fp32.
bool is_about_bf16(const std::string& row) { return row == "autocast" || row == "bf16_weights"; }

class Switched : public testing::Test {
 protected:
  Json train(const std::string& run, bool bf16, const std::string& off) {
    std::vector<std::string> words = {MILLRACE_PROGRAM,
                                      "train",
                                      "language_model",
                                      "--preset=smoke",
                                      "--run",
                                      (scratch_.path() / run).string(),
                                      "--train.max_steps=25",
                                      "--train.validate_every=25",
                                      "--recipe.sources=" + text_.string(),
                                      "--recipe.model_dropout=0.1",
                                      "--memory.recompute=all",  // so that its row has something to turn off
                                      bf16 ? "--precision.dtype=bf16" : "--precision.dtype=fp32",
                                      "--json"};
    if (!off.empty()) words.push_back("--off=" + off);
    const test::Result result = test::run(words, {.environment = {{"XDG_CACHE_HOME", (scratch_.path() / "cache").string()}}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  }

  void SetUp() override {
    std::string text;
    for (int i = 0; i < 40'000; ++i) text += static_cast<char>('a' + (i * i / 7 + i / 11) % 9);
    test::write_text(text_, text);
  }

  test::Scratch scratch_;
  std::filesystem::path text_ = scratch_.path() / "text.txt";
};

TEST_F(Switched, EveryRowOffEqualsOnInAWholeRun) {
  const test::Result table = test::run({MILLRACE_PROGRAM, "list", "--switches", "--json"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const Json rows = Json::parse(table.out);
  ASSERT_GE(rows.size(), 13U);
  std::map<bool, Json> on;
  for (const bool bf16 : {false, true}) on[bf16] = train(bf16 ? "bf16" : "fp32", bf16, "");
  EXPECT_NE(on[false].at("state_sha256"), on[true].at("state_sha256"));
  for (const Json& row : rows) {
    const std::string name = row.at("name");
    SCOPED_TRACE(name);
    if (row.at("equality") == "statistical") continue;  // compared by the recipe that has it
    const bool bf16 = is_about_bf16(name);
    const Json off = train("without_" + name, bf16, name);
    if (row.at("equality") == "bits") {
      EXPECT_EQ(off.at("state_sha256"), on[bf16].at("state_sha256"));
      continue;
    }
    ASSERT_EQ(row.at("equality"), "tolerance");
    const Json::json_pointer losses[] = {Json::json_pointer("/loss/last"), Json::json_pointer("/metrics/val_loss/last")};
    for (const auto& loss : losses) {
      const double plain = off.at(loss);
      EXPECT_NEAR(on[bf16].at(loss).get<double>(), plain, row.at("tolerance").get<double>() * plain) << loss;
    }
  }
  // The rows do something: the plain paths of these end in other bits.
  const auto digest = [&](const std::string& name) { return train("again_" + name, false, name).at("state_sha256"); };
  EXPECT_NE(digest("fused_attention"), on[false].at("state_sha256"));
}

// What a trial of the number format keeps to compare with must be gone before memory is measured.
TEST_F(Switched, ABudgetIsMetAfterOtherTrials) {
  const test::Result result =
      test::run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--run", (scratch_.path() / "budget").string(),
                 "--train.max_steps=3", "--recipe.sources=" + text_.string(), "--memory.budget=90%", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json memory = Json::parse(result.out).at("memory");
  EXPECT_NEAR(memory.at("step_peak_bytes").get<double>() / memory.at("predicted_bytes").get<double>(), 1.0, 0.01) << memory;
  EXPECT_LE(memory.at("step_peak_bytes").get<double>(), memory.at("budget_bytes").get<double>());
}

}  // namespace
}  // namespace millrace
