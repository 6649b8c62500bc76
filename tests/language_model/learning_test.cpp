// Whole runs on text whose best possible loss is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "millrace/device/device.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "recipes/language_model/recipe.h"
#include "recipes/language_model/train_model.h"
#include "runs.h"

namespace millrace::recipes::language_model {
namespace {

Json on_smoke_data(Json values) {
  values["data.dir"] = smoke_data();
  return values;
}

Loaded load(const std::filesystem::path& run) {
  telemetry::Console console(telemetry::Console::Mode::quiet);
  return load_for_inference(entry(), run, nullptr, Json::object(), console);
}

// Trained once, looked at by the tests below.
const RunOutcome& smoke_run() {
  static const RunOutcome outcome = train("smoke", on_smoke_data({}), std::filesystem::path(smoke_data()) / ".." / "smoke_run");
  return outcome;
}

TEST(Learning, SmokeComesNearTheEntropyOfItsTextAndNotBelow) {
  std::filesystem::remove_all(std::filesystem::path(smoke_data()) / ".." / "smoke_run");
  const double loss = metric(smoke_run(), "val_loss");
  EXPECT_LE(loss, 1.26);
  EXPECT_GE(loss, kEntropyRate - 0.02);
  EXPECT_NEAR(metric(smoke_run(), "bits_per_char"), loss / std::log(2.0), 1e-4);
  EXPECT_EQ(smoke_run().summary.at("parameters"), 101'376);
  EXPECT_EQ(device::memory_queries(), 0U);  // log.gpu_memory is off
}

TEST(Learning, WithoutEmbeddingScalePositionsDrownTheTokens) {
  const Json short_run = on_smoke_data(
      {{"train.max_steps", 150}, {"train.validate_every", 150}, {"precision.dtype", "fp32"}, {"device.kernels", "ours"}});
  Json off = short_run;
  off["recipe.embedding_scale"] = false;
  const auto folder = test_folder();
  EXPECT_LT(metric(train("smoke", short_run, folder / "scaled"), "val_loss"), 1.8);
  EXPECT_GT(metric(train("smoke", off, folder / "plain"), "val_loss"), 2.6);
}

TEST(Learning, TheModelWritesWhatTheChainAllows) {
  Loaded loaded = load(smoke_run().run_folder);
  auto& model = dynamic_cast<LanguageModel&>(unguarded(*loaded.recipe));
  GenerateConfig config = model.generate_config();
  config.max_length = 400;
  const std::string text = "abc" + model.write("abc", config, false);
  ASSERT_EQ(text.size(), 403U);
  int allowed = 0;
  for (std::size_t i = 3; i < text.size(); ++i) {
    const int distance = (text[i] - text[i - 1] + 16) % 16;
    allowed += distance == 1 || distance == 3 || distance == 6 || distance == 10;
  }
  EXPECT_GE(allowed, 392);
  EXPECT_EQ(model.write("abc", config, false), text.substr(3));
}

TEST(Learning, BeamSearchFindsNothingWorseThanGreedy) {
  Loaded loaded = load(smoke_run().run_folder);
  auto& transformer = dynamic_cast<LanguageModel&>(unguarded(*loaded.recipe)).model();
  const std::vector<std::int64_t> prompt = {4, 5, 6};
  GenerateConfig config{.max_length = 20, .temperature = 0, .beam_size = 1};
  const double greedy = beam_search(transformer, prompt, config, data::Tokenizer::kEnd, 0.0).log_probability;
  for (const std::int64_t beams : {2, 5}) {
    config.beam_size = beams;
    const BeamResult result = beam_search(transformer, prompt, config, data::Tokenizer::kEnd, 0.0);
    EXPECT_LE(result.score, 0.0);
    EXPECT_GE(result.log_probability, greedy - 1e-6 * std::abs(greedy)) << beams << " beams";
  }
}

TEST(Learning, EvaluationOfTheSavedModelGivesTheRunsLoss) {
  Loaded loaded = load(smoke_run().run_folder);
  telemetry::Console console(telemetry::Console::Mode::quiet);
  EXPECT_NEAR(evaluate(loaded, console).metrics.at("val_loss"), metric(smoke_run(), "val_loss", "best"), 1e-2);
}

TEST(Learning, GenerateCommandWritesWithATrainedRun) {
  const std::string run = smoke_run().run_folder.string();
  const auto output = [&](const std::vector<std::string>& words) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(generate_command(words), 0);
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string greedy = output({"--from", run, "abc", "--max_length=10", "--temperature", "0"});
  EXPECT_THAT(greedy, ::testing::MatchesRegex("abc[a-p]{10}\n"));
  EXPECT_EQ(output({"--from=" + run, "--generate.prompt=abc", "--max_length=10", "--beam", "--beam_size=1"}), greedy);
  EXPECT_THAT(output({"--help"}), ::testing::StartsWith("usage: millrace generate"));
  EXPECT_THROW(generate_command(std::vector<std::string>{"--from", run, "--train.seed=3"}), UsageError);
  EXPECT_THROW(generate_command(std::vector<std::string>{"--from", run, "two", "prompts"}), ConfigError);
  EXPECT_THROW(generate_command(std::vector<std::string>{"--from", run + "/nothing"}), UsageError);
}

TEST(Learning, ResumedRunsEqualUninterruptedOnes) {
  const auto folder = test_folder();
  const auto run = [&](const char* name, int steps) {
    return train(
        "smoke",
        on_smoke_data(
            {{"train.max_steps", steps}, {"train.validate_every", 40}, {"precision.dtype", "fp32"}, {"device.kernels", "ours"}}),
        folder / name);
  };
  const std::string whole = run("whole", 100).summary.at("state_sha256");
  EXPECT_NE(run("parts", 57).summary.at("state_sha256"), whole);
  EXPECT_EQ(run("parts", 100).summary.at("state_sha256"), whole);
}

TEST(Learning, Fp16FollowsFp32) {
  const auto folder = test_folder();
  const auto loss_in = [&](const char* dtype) {
    return metric(
        train(
            "smoke",
            on_smoke_data(
                {{"train.max_steps", 40}, {"train.validate_every", 40}, {"precision.dtype", dtype}, {"device.kernels", "ours"}}),
            folder / dtype),
        "val_loss");
  };
  EXPECT_NEAR(loss_in("fp16"), loss_in("fp32"), 0.15);
}

TEST(Learning, TrainModelTakesTheOriginalsArguments) {
  const auto folder = test_folder();
  const auto tokenizer = data::Tokenizer::basic(U"abcdefghijklmnop");
  auto model =
      std::make_shared<Transformer>(ModelConfig{.vocab_size = 20, .positions = 64, .width = 32, .layers = 1, .heads = 2}, 1);
  const at::Tensor before = model->parameters().front().detach().clone();
  const History history = train_model(model, tokenizer, {smoke_data() + "/letters.txt"},
                                      {.epochs = 2,
                                       .batch_size = 64,
                                       .learning_rate = 1e-3,
                                       .seq_len = 64,
                                       .save_path = (folder / "model").string(),
                                       .use_amp = false,
                                       .print = false});
  ASSERT_EQ(history.train_loss.size(), 2U);
  ASSERT_EQ(history.val_loss.size(), 2U);
  ASSERT_EQ(history.epoch_times.size(), 2U);
  EXPECT_LT(history.train_loss[1], history.train_loss[0]);
  EXPECT_LT(history.val_loss[1], 2.8);
  EXPECT_FALSE(torch::equal(before, model->parameters().front()));

  Loaded loaded = load(folder / "model");
  auto& again = dynamic_cast<LanguageModel&>(unguarded(*loaded.recipe));
  EXPECT_EQ(again.model().config().width, 32) << "the run folder describes the model";
  EXPECT_EQ(again.model().config().heads, 2);
  EXPECT_NO_THROW((void)again.write("abc", again.generate_config(), false));
}

}  // namespace
}  // namespace millrace::recipes::language_model
