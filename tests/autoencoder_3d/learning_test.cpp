// Whole runs on volumes of known truth: the recipe's promises about learning and about its two objectives.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/train/run/run.h"
#include "recipes/autoencoder_3d/entry.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/autoencoder_3d/model.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

namespace stdfs = std::filesystem;

stdfs::path base() { return stdfs::current_path() / "autoencoder_3d_runs"; }

// The volumes of the smoke preset, made once per program.
std::string smoke_volumes() {
  static const std::string folder = [] {
    const stdfs::path path = base() / "smoke_volumes";
    stdfs::remove_all(path);
    stdfs::create_directories(path);
    write_sample_volumes(*sample_volumes_of("smoke"), path, 0);
    return path.string();
  }();
  return folder;
}

RunOutcome train(const Json& values, const std::string& name) {
  const stdfs::path run = base() / name;
  stdfs::remove_all(run);
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  for (const auto& [preset, preset_values] : row.presets) {
    if (preset == "smoke") layers.add_values(preset_values, "preset");
  }
  layers.add_values({{"run.dir", run.string()},
                     {"data.dir", smoke_volumes()},
                     {"log.tensorboard", false},
                     {"precision.dtype", "fp32"},
                     {"device.layout", "contiguous"}},
                    "test");
  layers.add_values(values, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{.entry = &row, .config = layers.resolve(), .preset = "smoke", .console = &console};
  return run_training(request);
}

double metric(const RunOutcome& outcome, const std::string& name) {
  return outcome.summary.at("metrics").at(name).at("last").get<double>();
}

Tensors weights_of(const RunOutcome& run) {
  telemetry::Console console(telemetry::Console::Mode::quiet);
  const Loaded loaded = load_for_inference(entry(), run.run_folder, nullptr, Json::object(), console);
  Tensors all;
  for (const auto& item : loaded.recipe->model().named_parameters()) all[item.key()] = item.value().detach().clone();
  return all;
}

// Log lines of steps, in order.
std::vector<Json> steps_of(const RunOutcome& run) {
  std::istringstream text(Fs::real().read_file(run.run_folder / "log.jsonl"));
  std::vector<Json> all;
  for (std::string line; std::getline(text, line);) {
    Json event = Json::parse(line);
    if (event.value("kind", "") == "step") all.push_back(std::move(event));
  }
  return all;
}

// Predicting 0 everywhere is off by 0.078.
TEST(AutoencoderLearning, TheSmokePresetLearnsItsVolumes) {
  const RunOutcome run = train({{"recipe.adv_weight", 0}, {"train.epochs", 25}}, "smoke");
  EXPECT_EQ(run.summary.at("parameters"), 197'913);
  EXPECT_EQ(run.summary.at("steps"), 200);
  std::cout << "reconstruction is off by " << metric(run, "val_autoencoder") << "\n";
  EXPECT_LE(metric(run, "val_autoencoder"), 0.065);
  EXPECT_GT(metric(run, "psnr"), 18);
  for (const char* picture : {"planes", "latent", "val_img_0", "val_recon_2"})
    EXPECT_TRUE(stdfs::exists(run.run_folder / "pictures" / (std::string(picture) + ".png"))) << picture;
}

TEST(AutoencoderLearning, TheDiscriminatorIsUntouchedUntilItJoins) {
  const Json small = {{"train.epochs", 3}, {"log.every", 8}};
  const auto with = [&](std::int64_t start, const char* name) {
    Json values = small;
    values["recipe.adv_start_epoch"] = start;
    return train(values, name);
  };
  const RunOutcome without = with(5, "without"), joined = with(1, "joined");
  const Tensors untouched = weights_of(without), trained = weights_of(joined);
  Json tree = config::write(RecipeConfig{});
  for (const auto& [preset, preset_values] : entry().presets) {
    if (preset != "smoke") continue;
    for (const auto& [key, value] : preset_values.items()) {
      if (key.starts_with("recipe.")) tree[key.substr(7)] = value;
    }
  }
  VolumeGan fresh(config::read<Sections>(Json{{"recipe", tree}}).recipe, 42);
  for (const auto& item : fresh.discriminator().named_parameters()) {
    EXPECT_TRUE(untouched.at(item.key()).equal(item.value())) << item.key();
    EXPECT_FALSE(trained.at(item.key()).equal(item.value())) << item.key();
  }
  const std::vector<Json> steps = steps_of(joined);
  ASSERT_EQ(steps.size(), 4U) << "the first, and the last of each epoch";
  EXPECT_EQ(steps[2].dump().find("/adv\""), std::string::npos) << "epoch 1 is the last without";
  EXPECT_NE(steps[3].dump().find("/adv\""), std::string::npos) << steps[3].dump();
  EXPECT_NE(steps[3].dump().find("real_found"), std::string::npos);
}

TEST(AutoencoderLearning, TwoBatchesOfOneAreABatchOfTwo) {
  // Groups of one channel would leave biases without a gradient but for rounding.
  const Json few = {{"train.epochs", 0},
                    {"train.max_steps", 4},
                    {"recipe.adv_start_epoch", -1},
                    {"recipe.norm_num_groups", 4},
                    {"log.train_metrics", false}};
  const auto with = [&](std::int64_t rows, std::int64_t accumulate, const char* name) {
    Json values = few;
    values.update({{"data.batch_size", rows}, {"optim.accumulate", accumulate}});
    return weights_of(train(values, name));
  };
  const Tensors two = with(2, 1, "two"), one = with(1, 2, "one");
  for (const auto& [name, value] : two) {
    if (name.ends_with("to_k.bias")) continue;  // its gradient is rounding
    EXPECT_LE((value - one.at(name)).norm().item<double>(), 1e-3 * value.norm().item<double>()) << name;
  }
}

// Where the original's divergence overflowed.
TEST(AutoencoderLearning, TheDivergenceStaysFiniteAtALargeLearningRate) {
  const RunOutcome run = train({{"optim.learning_rate", 1.7e-3},
                                {"optim.schedule", "constant"},
                                {"optim.warmup_steps", 0},
                                {"recipe.adv_start_epoch", 1},
                                {"train.epochs", 8},
                                {"log.every", 4}},
                               "fast");
  EXPECT_EQ(run.summary.value("skipped_steps", 0), 0);
  EXPECT_TRUE(std::isfinite(metric(run, "kl")));
  for (const Json& step : steps_of(run)) EXPECT_EQ(step.dump().find("null"), std::string::npos) << step.dump();
}

}  // namespace
}  // namespace millrace::recipes::autoencoder_3d
