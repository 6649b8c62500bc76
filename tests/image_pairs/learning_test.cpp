// Whole runs on images of known noise: the recipe's promises about learning, its frozen base and its commands.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/format/csv.h"
#include "millrace/measure/memory_search.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run/run.h"
#include "recipes/image_pairs/entry.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

stdfs::path base() { return stdfs::current_path() / "image_pairs_runs"; }

// The images of the smoke preset, made once per program.
std::string smoke_images() {
  static const std::string folder = [] {
    const stdfs::path path = base() / "smoke_images";
    stdfs::remove_all(path);
    stdfs::create_directories(path);
    write_sample_images(*sample_images_of("smoke"), path, 0);
    return path.string();
  }();
  return folder;
}

config::Resolved resolved(const Json& values, const std::string& run) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  for (const auto& [preset, preset_values] : row.presets) {
    if (preset == "smoke") layers.add_values(preset_values, "preset");
  }
  layers.add_values({{"run.dir", run}, {"data.dir", smoke_images()}, {"log.tensorboard", false}, {"precision.dtype", "fp32"}},
                    "test");
  layers.add_values(values, "test");
  return layers.resolve();
}

RunOutcome train(const Json& values, const std::string& name) {
  const stdfs::path run = base() / name;
  stdfs::remove_all(run);
  const Entry row = entry();
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{.entry = &row, .config = resolved(values, run.string()), .preset = "smoke", .console = &console};
  return run_training(request);
}

double metric(const RunOutcome& outcome, const std::string& name) {
  return outcome.summary.at("metrics").at(name).at("last").get<double>();
}

std::vector<Json> records(const RunOutcome& run, const std::string& kind) {
  std::istringstream text(Fs::real().read_file(run.run_folder / "log.jsonl"));
  std::vector<Json> all;
  for (std::string line; std::getline(text, line);) {
    Json event = Json::parse(line);
    if (event.value("kind", "") == kind) all.push_back(std::move(event));
  }
  return all;
}

// The table beside the picture: both orders of each of 512 pairs, as many right ones as the accuracy says.
void expect_confusion_of(const RunOutcome& run) {
  const auto rows = format::parse_csv(Fs::real().read_file(run.run_folder / "confusion.csv")).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"label", "First", "Second", "Similar"}));
  double all = 0, right = 0;
  for (std::size_t label = 1; label < rows.size(); ++label) {
    ASSERT_EQ(rows[label].size(), 4U);
    EXPECT_EQ(rows[label][0], rows[0][label]);
    for (std::size_t answer = 1; answer < rows.size(); ++answer) all += std::stod(rows[label][answer]);
    right += std::stod(rows[label][label]);
  }
  EXPECT_EQ(all, 1024);
  EXPECT_NEAR(right / all, metric(run, "accuracy"), 1e-6);
}

TEST(PairLearning, APresetMakesItsImagesOfThePhotographsThatAConfigNames) {
  const stdfs::path data = stdfs::path("runs") / "data";
  stdfs::remove_all(data);
  const Json values = {{"data.dir", ""},
                       {"recipe.photographs", smoke_images() + "/images"},
                       {"recipe.val_samples", 50},
                       {"device.kernels", "ours"},
                       {"train.max_steps", 2}};
  const RunOutcome run = train(values, "photographs");
  EXPECT_EQ(run.summary.at("steps"), 2);
  std::vector<stdfs::path> made(stdfs::directory_iterator(data), {});
  ASSERT_EQ(made.size(), 1U);
  EXPECT_TRUE(made[0].filename().string().starts_with("image_pairs-smoke-")) << made[0];
  EXPECT_TRUE(stdfs::exists(made[0] / "groups.txt")) << "crops of one photograph are a group";
  EXPECT_EQ(train(values, "photographs").summary.at("steps"), 2) << "the images that are there";
}

// Guessing has a cross-entropy of ln 3 = 1.0986, times 1.2 for similar pairs, and is right once in three.
TEST(PairLearning, TheSmokePresetLearnsToTellNoise) {
  const RunOutcome run = train({{"train.max_steps", 220}, {"train.validate_at_start", true}}, "smoke");
  EXPECT_EQ(run.summary.at("parameters"), 264'256);
  const std::vector<Json> validations = records(run, "validation");
  const auto start = [&](const char* name) { return validations.front().at(name).get<double>(); };
  EXPECT_NEAR(start("val_loss/ce"), 1.17, 0.06);
  EXPECT_GT(start("accuracy"), 0.2);
  EXPECT_LT(start("accuracy"), 0.45);
  std::cout << "cross-entropy " << metric(run, "val_loss/ce") << ", accuracy " << metric(run, "accuracy") << ", swap agreement "
            << metric(run, "swap_agreement") << ", rank correlation " << metric(run, "score_spearman") << "\n";
  EXPECT_LT(metric(run, "val_loss/ce"), 0.80);
  EXPECT_GT(metric(run, "accuracy"), 0.6);
  EXPECT_GT(metric(run, "swap_agreement"), 0.7);
  EXPECT_GT(metric(run, "score_spearman"), 0.7);
  for (const char* picture : {"confusion", "scores", "hard_pairs"})
    EXPECT_TRUE(stdfs::exists(run.run_folder / "pictures" / (std::string(picture) + ".png"))) << picture;
  const std::string table = Fs::real().read_file(run.run_folder / "training_log.csv");
  EXPECT_EQ(std::ranges::count(table, '\n'), 1 + static_cast<std::int64_t>(records(run, "step").size()))
      << "a head, a row a line";
  expect_confusion_of(run);
}

// Base / W at first, the base at the end of the warm-up, a hundredth at the end; an update a batch, by the optimiser's own count.
TEST(PairLearning, TheScheduleAndTheUpdatesAreThePages) {
  const RunOutcome run = train({{"train.max_steps", 41},
                                {"log.every", 1},
                                {"optim.learning_rate", 2e-4},
                                {"device.kernels", "ours"},
                                {"train.validate_every", 41},
                                {"train.validate_batches", 1}},
                               "schedule");
  const std::vector<Json> steps = records(run, "step");
  ASSERT_EQ(steps.size(), 41U);
  EXPECT_EQ(run.summary.at("steps"), 41);
  const auto rate = [&](std::size_t step) { return steps[step].at("lr").get<double>(); };
  EXPECT_NEAR(rate(0), 2e-4 / 3, 1e-10) << "5 % of 41, rounded up, are three steps";
  EXPECT_NEAR(rate(2), 2e-4, 1e-10);
  EXPECT_NEAR(rate(22), 1e-4, 1e-10) << "half way of the cosine";
  EXPECT_NEAR(rate(40), 2e-6, 1e-12) << "the floor";
  const auto saved = snapshot::load_newest(Fs::real(), run.run_folder, nullptr);
  ASSERT_TRUE(saved.has_value());
  std::size_t counted = 0;
  for (const auto& [name, tensor] : saved->parts.at("optimizer").tensors) {
    if (!name.ends_with(".step")) continue;
    ++counted;
    EXPECT_EQ(tensor.item<double>(), 41) << name;
  }
  EXPECT_EQ(counted, PairModel(config::read<Sections>(resolved(Json::object(), "").values).recipe, 42).parameters().size());
}

TEST(PairLearning, AnEstimateCountsGradientsAndASnapshotOfWhatIsTrained) {
  const Entry row = entry();
  const auto estimated = [&](bool frozen) {
    telemetry::Console console(telemetry::Console::Mode::quiet);
    RunRequest request{
        .entry = &row, .config = resolved({{"recipe.freeze_base", frozen}}, ""), .preset = "smoke", .console = &console};
    return estimate_memory(request);
  };
  for (const bool frozen : {false, true}) {
    const Json result = estimated(frozen);
    const std::int64_t trained = 4 * (frozen ? 16'512 : 264'256);
    EXPECT_EQ(result.at("parameters_bytes"), 4 * 264'256);
    EXPECT_EQ(result.at("gradients_bytes"), trained);
    EXPECT_EQ(result.at("account").at("gradients"), trained);
    EXPECT_EQ(result.at("account").at("snapshot"), trained + result.at("optimizer_bytes").get<std::int64_t>());
  }
}

TEST(PairLearning, AFrozenBaseStaysAsItIsAndItsFeaturesMayBeKept) {
  const Json frozen = {{"recipe.freeze_base", true},
                       {"train.max_steps", 6},
                       {"train.validate_every", 6},
                       {"log.every", 1},
                       {"device.kernels", "ours"}};
  const RunOutcome kept = train(frozen, "kept");
  Json off = frozen;
  off["recipe.cache_image_features"] = false;
  const RunOutcome made = train(off, "made");
  EXPECT_EQ(kept.summary.at("state_sha256"), made.summary.at("state_sha256")) << "features kept or made anew are the same bits";
  telemetry::Console console(telemetry::Console::Mode::quiet);
  const Loaded loaded = load_for_inference(entry(), kept.run_folder, nullptr, Json::object(), console);
  const auto run = config::read<Sections>(loaded.config.values).recipe;
  PairModel fresh(run, 42, true);
  const auto drawn = fresh.named_parameters();
  for (const auto& item : loaded.recipe->model().named_parameters()) {
    const Part part = part_of(item.key());
    const bool is_base = part == Part::vision || part == Part::decoder;
    EXPECT_EQ(item.value().equal(*drawn.find(item.key())), is_base) << item.key();
  }
  const std::vector<Json> steps = records(kept, "step");
  EXPECT_NEAR(steps.front().at("train/consistency_weight").get<double>(), 5, 1e-9);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
