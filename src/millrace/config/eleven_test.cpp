// Eleven mistakes of different kinds, from three files, the environment and flags, give eleven messages at once.
#include <gtest/gtest.h>

#include "millrace/config/detail/test_config.h"
#include "millrace/config/schema.h"

namespace millrace::config {
namespace {

constexpr std::string_view kExpected = R"(ConfigError  11 problems in the config
   1  key "optim.momentum" appears twice
        where    file run.json:6
        next     remove one of them; the first is at run.json:5
   2  unknown key "optim.lerning_rate"
        where    file run.json:4
        next     did you mean optim.learning_rate?
   3  syntax error in TOML: Error while parsing date: expected 4-digit year, saw '-'
        where    file data.toml:2:15
        next     a range such as 6-8 is not a value: choose one number in it
   4  unknown flag --data.shufle
        where    command line
        next     did you mean --data.shuffle?
   5  optim.momentum is 1.5, out of range
        where    file run.json:5
        next     choose a value >= 0 and < 1
   6  optim.betas has 1 value, expected 2
        where    file run.json:7
        next     write a list of 2 numbers >= 0 and < 1
   7  model.dropout is "a lot", expected a number >= 0 and < 1 or null
        where    file model.yaml:2
        next     write a number >= 0 and < 1 or null
   8  unknown key "model.blocks[0].widht"
        where    file model.yaml:3
        next     did you mean "model.blocks[0].width"?
   9  data.batch_size is "6-8", expected an integer >= 1
        where    environment MILLRACE_DATA__BATCH_SIZE
        next     6-8 is a range: choose one number in it, such as 6
  10  optim.name is "adamx", expected one of adamw, adam, sgd
        where    flag --optim.name
        next     did you mean "adamw"?
  11  optim.learning_rate is 1e999, too large for a number
        where    flag --lr
        next     choose a smaller number
)";

TEST(ElevenMistakes, GiveElevenMessages) {
  const std::vector<Alias> aliases = test::settings_aliases();
  Layers layers(test::settings_schema(), aliases);
  layers.add_text(
      "{\n"
      "  // the optimiser\n"
      "  \"optim\": {\n"
      "    \"lerning_rate\": 0.1,\n"
      "    \"momentum\": 1.5,\n"
      "    \"momentum\": 0.5,\n"
      "    \"betas\": [0.9]\n"
      "  }\n"
      "}\n",
      ".json", "run.json");
  layers.add_text("model:\n  dropout: a lot\n  blocks:\n  - widht: 3\n", ".yaml", "model.yaml");
  layers.add_text("[data]\nbatch_size = 6-8\n", ".toml", "data.toml");
  layers.add_environment(std::vector<std::pair<std::string, std::string>>{{"MILLRACE_DATA__BATCH_SIZE", "6-8"}});
  layers.add_flags(std::vector<std::string>{"--optim.name=adamx", "--data.shufle", "--lr=1e999"});
  try {
    static_cast<void>(layers.resolve());
    FAIL() << "eleven mistakes went through";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems().size(), 11U);
    EXPECT_EQ(error.exit_code(), 2);
    for (const Problem& problem : error.problems()) {
      EXPECT_FALSE(problem.where.empty()) << problem.what;
      EXPECT_FALSE(problem.next.empty()) << problem.what;
    }
    EXPECT_EQ(std::string(error.what()) + "\n", kExpected);
  }
}

}  // namespace
}  // namespace millrace::config
