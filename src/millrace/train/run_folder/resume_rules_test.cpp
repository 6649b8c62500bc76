#include "millrace/train/run_folder/resume_rules.h"

#include <gmock/gmock.h>

#include "millrace/train/recipe/config.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const config::Schema& schema() {
  static const config::Schema all = config::schema_of<RunConfig>();
  return all;
}

// The dotted keys that are refused if the config `before` is replaced by `now`.
std::vector<std::string> refused(const Json& before, const Json& now, const stdfs::path& folder = {}) {
  const auto values = [](const Json& keys) {
    config::Layers layers(schema());
    layers.add_values(keys, "a test");
    return layers.resolve();
  };
  std::vector<std::string> keys;
  for (const Problem& problem : forbidden_changes(values(before).values, values(now), schema(), folder))
    keys.push_back(problem.what.substr(0, problem.what.find(' ')));
  return keys;
}

TEST(ResumeRules, WhatChangesTheMathematicsIsNotFree) {
  EXPECT_THAT(
      refused(Json::object(), {{"optim.learning_rate", 7}, {"data.batch_size", 9}, {"train.seed", 3}, {"train.off", {"x"}}}),
      ElementsAre("data.batch_size", "optim.learning_rate", "train.seed", "train.off"));
  EXPECT_THAT(refused(Json::object(), {{"device.threads", 1},
                                       {"device.name", "cpu"},
                                       {"train.max_steps", 8},
                                       {"data.dir", "elsewhere"},
                                       {"data.workers", 0},
                                       {"memory.micro_batches", 2},
                                       {"snapshot.keep_last", 1},
                                       {"log.every", 1},
                                       {"run.dir", "r"}}),
              IsEmpty());
}

TEST(ResumeRules, PathsAreAlikeWhenTheyLeadToTheSamePlace) {
  const stdfs::path root = stdfs::path(testing::TempDir()) / "resume_rules_test";
  stdfs::create_directories(root / "weights");
  const std::string whole = (root / "weights").string();
  EXPECT_THAT(refused({{"train.weights", whole}}, {{"train.weights", (root / "." / "weights").string()}}), IsEmpty());
  EXPECT_THAT(refused({{"train.weights", "weights"}}, {{"train.weights", whole}}, root), IsEmpty());
  EXPECT_THAT(refused({{"train.weights", "weights"}}, {{"train.weights", whole}}), ElementsAre("train.weights"));
  EXPECT_THAT(refused({{"train.weights", whole}}, {{"train.weights", ""}}, root), ElementsAre("train.weights"));
  EXPECT_FALSE(leads_to("", whole, root));
}

}  // namespace
}  // namespace millrace
