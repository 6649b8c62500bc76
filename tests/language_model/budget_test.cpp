// A memory budget in a whole run of the real program.
#include <gtest/gtest.h>

#include <string>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace {
namespace {

// What a trial of the number format keeps to compare with must be gone before memory is measured.
TEST(Budget, IsMetAfterOtherTrials) {
  const test::Scratch scratch;
  const auto file = scratch.path() / "text.txt";
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += static_cast<char>('a' + (i * i / 7 + i / 11) % 9);
  test::write_text(file, text);
  const test::Result result =
      test::run({MILLRACE_PROGRAM, "train", "language_model", "--preset=smoke", "--run", (scratch.path() / "budget").string(),
                 "--train.max_steps=3", "--recipe.sources=" + file.string(), "--memory.budget=90%", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json memory = Json::parse(result.out).at("memory");
  EXPECT_NEAR(memory.at("step_peak_bytes").get<double>() / memory.at("predicted_bytes").get<double>(), 1.0, 0.01) << memory;
  EXPECT_LE(memory.at("step_peak_bytes").get<double>(), memory.at("budget_bytes").get<double>());
}

}  // namespace
}  // namespace millrace
