// Whole runs: fp16, the fallback to fp32, averaged weights, spikes, learning-rate scaling, early stopping by an amount.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "millrace/base/error.h"
#include "millrace/optim/schedule.h"
#include "millrace/snapshot/snapshot.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

const Json kRun = {
    {"train.epochs", 0}, {"train.max_steps", 50}, {"log.every", 10}, {"snapshot.every_epochs", 0}, {"train.validate_every", 20}};

Json straight(const Json& config) { return toys::run(toys::grouped_regression(), "", config).summary; }

// Stopped before each of the given forward passes in turn, saved after every third step, and gone on with.
Json in_pieces(const Json& config, std::vector<int> stops, const std::filesystem::path& folder) {
  for (const int stop : stops) {
    int seen = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) == "loss" && seen++ == stop) throw std::runtime_error("stopped by the test");
    };
    EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder, with(config, {{"snapshot.every_steps", 3}})), RecipeError);
  }
  toys::at_point = nullptr;
  return toys::run(toys::grouped_regression(), folder, with(config, {{"snapshot.every_steps", 3}})).summary;
}

const Json* choice(const Json& summary, const std::string& option) {
  for (const Json& each : summary.at("choices")) {
    if (each.at("option") == option) return &each;
  }
  return nullptr;
}

struct Case {
  const char* name;
  Json config;
};

class Precise : public testing::TestWithParam<std::size_t> {
 public:
  static const std::vector<Case>& cases() {
    static const std::vector<Case> all = {
        {"fp16", {{"precision.dtype", "fp16"}, {"toy.dropout", 0.2}, {"optim.accumulate", 2}}},
        {"fp16_bad_steps", {{"precision.dtype", "fp16"}, {"toy.bad_from", 12}, {"toy.bad_steps", 3}}},
        {"fp16_falls_back", {{"precision.dtype", "fp16"}, {"toy.bad_from", 3}, {"toy.bad_steps", 25}}},
        {"bf16_falls_back", {{"precision.dtype", "bf16"}, {"toy.bad_from", 14}, {"toy.bad_steps", 4}}},
        {"average", {{"optim.ema_decay", 0.95}, {"toy.bad_from", 9}}},
        {"spikes", {{"optim.spike_zscore", 1.0}, {"train.max_steps", 90}}},
        {"warm", {{"optim.schedule", "cosine"}, {"optim.warmup_frac", 0.2}}},
    };
    return all;
  }
};

TEST_P(Precise, ARunInPiecesIsTheUninterruptedRun) {
  const Json config = with(kRun, Precise::cases()[GetParam()].config);
  const Json whole = straight(config);
  const toys::TemporaryFolder folder;
  const Json resumed = in_pieces(config, {5, 10, 13, 9}, folder.path());
  EXPECT_EQ(resumed.at("state_sha256"), whole.at("state_sha256"));
  EXPECT_EQ(resumed.at("skipped_steps"), whole.at("skipped_steps"));
  EXPECT_EQ(resumed.at("spike_steps"), whole.at("spike_steps"));
  EXPECT_EQ(resumed.at("metrics"), whole.at("metrics"));
}

INSTANTIATE_TEST_SUITE_P(Cases, Precise, testing::Range<std::size_t>(0, 7),
                         [](const auto& param_info) { return Precise::cases()[param_info.param].name; });

TEST(Fp16, LearnsAsFp32Does) {
  const Json config = {{"train.epochs", 20}};
  const Json fp32 = straight(config);
  const Json fp16 = straight(with(config, {{"precision", "16-mixed"}}));
  const double a = fp32.at("metrics").at("val_loss").at("last").get<double>();
  EXPECT_NEAR(fp16.at("metrics").at("val_loss").at("last").get<double>(), a, 0.1 * a);
  EXPECT_NE(fp16.at("state_sha256"), fp32.at("state_sha256"));
  const Json* dtype = choice(fp16, "precision.dtype");
  ASSERT_NE(dtype, nullptr);
  EXPECT_EQ(dtype->at("value"), "fp16");
  EXPECT_THAT(dtype->at("reason").get<std::string>(), HasSubstr("slow here"));
}

TEST(Precision, TheWordsOfOthersAreUnderstood) {
  const Entry entry = toys::grouped_regression();
  const config::Schema schema = schema_of(entry);
  const auto aliases = aliases_of(entry);
  const std::vector<std::tuple<const char*, Json, const char*>> words = {
      {"precision", "32-true", "fp32"},  {"precision", 32, "fp32"},           {"precision", "16-mixed", "fp16"},
      {"precision", 16, "fp16"},         {"precision", "bf16-mixed", "bf16"}, {"precision", "auto", "auto"},
      {"amp_dtype", "none", "fp32"},     {"amp_dtype", "fp16", "fp16"},       {"amp_dtype", "bfloat16", "bf16"},
      {"mixed_precision", "no", "fp32"}, {"mixed_precision", "bf16", "bf16"}, {"amp", false, "fp32"}};
  for (const auto& [key, word, meaning] : words) {
    config::Layers layers(schema, aliases);
    layers.add_values(entry.defaults, "recipe");
    layers.add_values({{key, word}}, "test");
    EXPECT_EQ(layers.resolve().values.at("precision").at("dtype"), meaning) << key << " " << word;
  }
}

TEST(Fallback, IsSaidOnceAndKept) {
  const toys::TemporaryFolder folder;
  const Json config = with(kRun, {{"precision.dtype", "fp16"}, {"toy.bad_from", 3}, {"toy.bad_steps", 25}, {"log.every", 5}});
  const Json summary = toys::run(toys::grouped_regression(), folder.path(), config).summary;
  EXPECT_GE(summary.at("skipped_steps").get<double>(), 25.0);
  const auto records = toys::log_of(folder.path(), "precision");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records.back().at("to"), "fp32");
  EXPECT_EQ(records.back().at("from"), "fp16");
  EXPECT_THAT(records.back().at("reason").get<std::string>(), HasSubstr("the loss scale fell to 0."));
  const std::int64_t step = records.back().at("step").get<std::int64_t>();
  EXPECT_GE(step, 20);
  EXPECT_LE(step, 30);
  ASSERT_NE(choice(summary, "precision.fallback"), nullptr);
  EXPECT_EQ(choice(summary, "precision.fallback")->at("value"), "fp32 from step " + std::to_string(step));
  std::ifstream plan(folder.path() / "plan.json");
  EXPECT_THAT(Json::parse(plan).dump(), HasSubstr("precision.fallback"));
  const Json longer = toys::run(toys::grouped_regression(), folder.path(), with(config, {{"train.max_steps", 60}})).summary;
  EXPECT_EQ(choice(longer, "precision.dtype")->at("value"), "fp32");
  EXPECT_EQ(choice(longer, "precision.fallback")->at("origin"), "snapshot");
}

TEST(Fallback, ManyOverflowsInARowAreNoDivergenceInFp16) {
  const Json config = with(kRun, {{"precision.dtype", "fp16"}, {"toy.bad_from", 3}, {"toy.bad_steps", 11}, {"log.every", 1}});
  EXPECT_GE(straight(config).at("skipped_steps").get<double>(), 11.0);
  EXPECT_EQ(choice(straight(config), "precision.fallback"), nullptr);
  EXPECT_THROW((void)straight(with(config, {{"precision.dtype", "fp32"}})), TrainingDiverged);
  EXPECT_THROW((void)straight(with(config, {{"toy.bad_steps", 40}})), TrainingDiverged) << "fp32 does not help either";
}

TEST(Average, IsWhatValidationAndInferenceSee) {
  const toys::TemporaryFolder folder;
  const Entry entry = toys::grouped_regression();
  const Json config = {{"train.epochs", 4}, {"optim.ema_decay", 0.98}, {"optim.learning_rate", 0.05}};
  const Json summary = toys::run(entry, folder.path(), config).summary;
  const Json plain = toys::run(entry, "", with(config, {{"optim.ema_decay", 0.0}})).summary;
  EXPECT_EQ(summary.at("loss"), plain.at("loss")) << "the training itself does not change";
  EXPECT_NE(summary.at("metrics"), plain.at("metrics"));

  const auto content = snapshot::load_newest(Fs::real(), folder.path(), [](const auto&, const auto&) {});
  const Tensors& average = content->parts.at("average").tensors;
  const Tensors& weights = content->models.at("model");
  EXPECT_EQ(average.size(), weights.size());
  EXPECT_FALSE(at::equal(average.at("trunk.weight"), weights.at("trunk.weight")));
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry, folder.path(), nullptr, Json::object(), console);
  EXPECT_THAT(loaded.which, HasSubstr(", averaged weights"));
  const auto means = evaluate(loaded, console).metrics;
  EXPECT_NEAR(means.at("val_loss"), summary.at("metrics").at("val_loss").at("best").get<double>(), 1e-6);
}

TEST(Average, BeginsWithTheWeightsOfARunThatHadNone) {
  const toys::TemporaryFolder first;
  const toys::TemporaryFolder second;
  (void)toys::run(toys::grouped_regression(), first.path(), {{"train.max_steps", 9}});
  const Json resumed = toys::run(toys::grouped_regression(), second.path(),
                                 {{"train.max_steps", 10},
                                  {"train.resume", first.path().string()},
                                  {"optim.ema_decay", 0.5},
                                  {"optim.learning_rate", 1e-9}})
                           .summary;
  EXPECT_EQ(resumed.at("steps"), 10);
  const auto content = snapshot::load_newest(Fs::real(), second.path(), [](const auto&, const auto&) {});
  const at::Tensor apart =
      content->parts.at("average").tensors.at("trunk.weight") - content->models.at("model").at("trunk.weight");
  EXPECT_LT(apart.abs().max().item<double>(), 1e-6);
}

TEST(Rate, IsScaledToTheGlobalBatchAndThePlanSaysSo) {
  const Json base = {{"train.max_steps", 12}, {"optim.accumulate", 2}, {"data.batch_size", 4}, {"optim.learning_rate", 0.01}};
  const Json scaled = straight(with(base, {{"optim.lr_scaling", "sqrt"}, {"optim.lr_scaling_batch", 6}}));
  const Json given = straight(with(base, {{"optim.learning_rate", 0.02}}));
  EXPECT_EQ(scaled.at("loss"), given.at("loss"));
  EXPECT_EQ(choice(scaled, "optim.learning_rate")->at("value"), "0.02");
  EXPECT_EQ(choice(scaled, "optim.learning_rate")->at("reason"), "0.01 x sqrt(24 / 6)");
  const Json linear = straight(with(base, {{"optim.lr_scaling", "linear"}, {"optim.lr_scaling_batch", 12}}));
  EXPECT_EQ(linear.at("loss"), given.at("loss"));
  try {
    (void)straight(with(base, {{"optim.lr_scaling", "linear"}}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the global batch for which it was chosen is not set"));
  }
}

TEST(Rate, AShareOfTheRunWarmsUpAsItsStepsDo) {
  const Json base = {{"train.max_steps", 20}, {"train.epochs", 0}, {"optim.schedule", "warmup_cosine"}};
  const Json share = straight(with(base, {{"optim.warmup_frac", 0.25}}));
  EXPECT_EQ(share.at("loss"), straight(with(base, {{"optim.warmup_steps", 5}})).at("loss"));
  EXPECT_NE(share.at("loss"), straight(base).at("loss"));
  const Json idle = straight({{"train.max_steps", 3}, {"optim.warmup_frac", 0.25}});
  EXPECT_THAT(choice(idle, "optim.warmup_frac")->at("reason").get<std::string>(), HasSubstr("without effect"));
}

TEST(EarlyStop, AGainBelowTheDeltaIsNone) {
  const Json config = {{"train.epochs", 60}, {"train.early_stop_patience", 3}};
  const Json any = straight(config);
  const Json large = straight(with(config, {{"train.early_stop_delta", 0.02}}));
  EXPECT_LT(large.at("epochs").get<int>(), any.at("epochs").get<int>());
  EXPECT_EQ(large.at("exit_reason"), "early_stop");
  EXPECT_EQ(straight(with(config, {{"train.early_stop_delta", 1e9}})).at("epochs"), 4) << "the first counts, three more do not";
}

TEST(Saved, AStateThatIsNotFiniteNeverIs) {
  const toys::TemporaryFolder folder;
  const Json config = {{"optim.name", "sgd"}, {"optim.learning_rate", 1e60}, {"snapshot.every_steps", 1}, {"log.every", 1}};
  try {  // a gradient that is fine, at a rate that is not
    (void)toys::run(toys::grouped_regression(), folder.path(), config);
    FAIL();
  } catch (const TrainingDiverged& error) {
    EXPECT_THAT(error.what(), HasSubstr("a weight or a running statistic is not finite"));
  }
  for (const snapshot::Found& found : snapshot::list(Fs::real(), folder.path())) {
    const auto saved = snapshot::load(Fs::real(), found.path);
    for (const auto& [name, tensor] : saved.models.at("model")) {
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << found.path << " " << name;
    }
  }
}

}  // namespace
}  // namespace millrace
