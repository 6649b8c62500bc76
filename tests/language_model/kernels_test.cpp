// Which kernels a run takes: by a trial, kept for later runs and in the snapshot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;

class Kernels : public ::testing::Test {
 protected:
  struct Trained {
    Json summary;
    std::map<std::string, Json> choices;  // rows of the plan, by option
    std::map<std::string, Json> kernels;  // of them those that say which kernels
  };

  Kernels() {
    std::string text;
    for (int i = 0; i < 40'000; ++i) text += static_cast<char>('a' + (i * i / 7 + i / 11) % 9);
    test::write_text(scratch_.path() / "text.txt", text);
  }

  // Of a model that is worth a trial, unless `words` say otherwise.
  Trained train(const std::string& run, const std::vector<std::string>& words) {
    std::vector<std::string> all{MILLRACE_PROGRAM,
                                 "train",
                                 "language_model",
                                 "--preset=test",
                                 "--recipe.model_layer=3",
                                 "--precision.dtype=fp32",
                                 "--train.validate_every=0",
                                 "--recipe.model_dropout=0.1",
                                 "--json",
                                 "--recipe.sources=" + (scratch_.path() / "text.txt").string(),
                                 "--run",
                                 (scratch_.path() / run).string()};
    all.insert(all.end(), words.begin(), words.end());
    const test::Result result = test::run(all, {.environment = {{"XDG_CACHE_HOME", cache().string()}}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Trained trained{Json::parse(result.out), {}, {}};
    for (const Json& choice : trained.summary.at("choices")) {
      const auto option = choice.at("option").get<std::string>();
      trained.choices[option] = choice;
      if (option.starts_with("kernels.")) trained.kernels[option] = choice;
    }
    return trained;
  }
  [[nodiscard]] std::filesystem::path cache() const { return scratch_.path() / "cache"; }

  test::Scratch scratch_;
};

TEST_F(Kernels, ATrialDecidesAndTheSnapshotKeepsWhatItDecided) {
  const Trained first = train("run", {"--train.max_steps=2"});
  for (const char* option : {"kernels.product.fp32", "kernels.input_gradient.fp32", "kernels.weight_gradient.fp32"}) {
    ASSERT_THAT(first.kernels, Contains(Key(option)));
    EXPECT_THAT(first.kernels.at(option).at("reason").get<std::string>(), HasSubstr("ms a step by our kernel"));
  }
  const Trained resumed = train("run", {"--train.max_steps=4"});
  ASSERT_EQ(resumed.kernels.size(), first.kernels.size());
  for (const auto& [option, choice] : resumed.kernels) {
    EXPECT_EQ(choice.at("value"), first.kernels.at(option).at("value"));
    EXPECT_EQ(choice.at("origin"), "snapshot");
  }
}

TEST_F(Kernels, WhatAnEarlierRunMeasuredIsNotMeasuredAgain) {
  (void)train("first", {"--train.max_steps=1"});
  const std::filesystem::path file = cache() / "millrace" / "trials.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "other programs had the cores all the time";
  Json trials = Json::parse(test::read_text(file));
  for (Json& machine : trials) {
    for (auto& [trial, times] : machine.items()) times = {1e-3, 1e6};  // nobody could measure that
  }
  test::write_text(file, trials.dump());
  const Trained second = train("second", {"--train.max_steps=1"});
  const Json kept = Json::parse(test::read_text(file));
  for (const auto& [machine, entries] : trials.items()) {
    for (const auto& [trial, times] : entries.items()) EXPECT_EQ(kept.at(machine).at(trial), times) << trial;
  }
}

// The number format too: with the file's word for the other one the run takes that one.
TEST_F(Kernels, AVerdictOnAWholeStepIsKeptForTheSameShapeAlone) {
  const auto format = [](const Trained& run) { return run.choices.at("precision.dtype"); };
  const Trained first = train("first", {"--train.max_steps=1", "--precision.dtype=auto"});
  const std::filesystem::path file = cache() / "millrace" / "trials.json";
  Json trials = std::filesystem::exists(file) ? Json::parse(test::read_text(file)) : Json::object();
  bool found = false;
  const std::string other = format(first).at("value") == "bf16" ? "fp32" : "bf16";
  for (Json& machine : trials) {
    for (auto& [trial, verdict] : machine.items()) {
      if (!trial.starts_with("precision ")) continue;
      verdict = {{"value", other}, {"reason", "a made-up figure"}};
      found = true;
    }
  }
  if (!found) GTEST_SKIP() << "no trial here, or other programs had the cores all the time";
  test::write_text(file, trials.dump());
  const Trained second = train("second", {"--train.max_steps=1", "--precision.dtype=auto"});
  EXPECT_EQ(format(second).at("value"), other);
  EXPECT_THAT(format(second).at("reason").get<std::string>(), HasSubstr("a made-up figure; measured by an earlier run"));
  const Trained off = train("off", {"--train.max_steps=1", "--precision.dtype=auto", "--off=kept_trials"});
  EXPECT_THAT(format(off).at("reason").get<std::string>(), Not(HasSubstr("a made-up figure")));
  const Trained larger = train("larger", {"--train.max_steps=1", "--precision.dtype=auto", "--data.batch_size=8"});
  EXPECT_THAT(format(larger).at("reason").get<std::string>(), Not(HasSubstr("a made-up figure")));
}

TEST_F(Kernels, TheConfigDecidesForAllAndBothWaysAgree) {
  const Trained ours = train("ours", {"--train.max_steps=2", "--device.kernels=ours"});
  const Trained library = train("library", {"--train.max_steps=2", "--device.kernels=library"});
  EXPECT_THAT(ours.kernels, IsEmpty());
  const auto loss = [](const Trained& run) { return run.summary.at("loss").at("last").get<double>(); };
  EXPECT_NEAR(loss(ours) / loss(library), 1, 1e-4);
  EXPECT_NE(ours.summary.at("state_sha256"), library.summary.at("state_sha256")) << "they must be able to differ";
}

TEST_F(Kernels, ATinyModelIsNotWorthATrial) {
  EXPECT_THAT(train("tiny", {"--train.max_steps=1", "--recipe.model_embd=16", "--data.batch_size=2"}).kernels, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(cache() / "millrace" / "trials.json"));
}

}  // namespace
}  // namespace millrace
