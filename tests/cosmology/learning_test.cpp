// Whole runs of preset smoke: the recipe's promises about learning, and equalities that need a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "millrace/hdf5/file.h"
#include "millrace/nn/pca.h"
#include "millrace/train/run/run.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/entry_parts.h"
#include "recipes/cosmology/make_data.h"

namespace millrace::recipes::cosmology {
namespace {

namespace stdfs = std::filesystem;

stdfs::path base() { return stdfs::current_path() / "cosmology_runs"; }

// The sky of the smoke preset, made once per program.
std::string smoke_sky() {
  static const std::string folder = [] {
    const stdfs::path path = base() / "smoke_sky";
    stdfs::remove_all(path);
    stdfs::create_directories(path);
    write_sample_sky(*sample_sky_of("smoke"), path, 0);
    return path.string();
  }();
  return folder;
}

RunOutcome train(const Json& values, const std::string& name, bool goes_on = false) {
  const stdfs::path run = base() / name;
  if (!goes_on) stdfs::remove_all(run);
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  layers.add_values(row.presets.front().second, "preset smoke");
  layers.add_values({{"run.dir", run.string()}, {"data.dir", smoke_sky()}, {"log.tensorboard", false}}, "test");
  layers.add_values(values, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request;
  request.entry = &row;
  request.config = layers.resolve();
  request.preset = "smoke";
  request.console = &console;
  return run_training(request);
}

// Values with which a short run has no trials, which take most of its time; the first test's run has them all.
Json untried(Json values) {
  values.update({{"device.kernels", "ours"}, {"device.layout", "contiguous"}, {"device.threads", 1}});
  return values;
}

double metric(const RunOutcome& outcome, const std::string& name) {
  return outcome.summary.at("metrics").at(name).at("last").get<double>();
}

std::string log_of(const RunOutcome& run) {
  std::ifstream log(run.run_folder / "log.jsonl");
  return {std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
}

constexpr auto kPinned = "three validations in a row the error has";

TEST(Learning, TheSmokePresetBeatsPrincipalComponentsAlone) {
  const RunOutcome run = train({{"precision.dtype", "fp32"}}, "smoke");
  EXPECT_EQ(run.summary.at("parameters"), 33'614);
  const double gain = metric(run, "pca_logmse") - metric(run, "val_loss");
  std::cout << "logmse " << metric(run, "val_loss") << ", of PCA alone " << metric(run, "pca_logmse") << ", corr "
            << metric(run, "corr") << ", of PCA alone " << metric(run, "pca_corr") << "\n";
  EXPECT_GE(gain, 0.04);  // half of what the page's reference run gained
  EXPECT_GT(metric(run, "corr"), metric(run, "pca_corr"));
  EXPECT_LT(metric(run, "residual_power"), metric(run, "pca_residual_power"));
  EXPECT_THAT(log_of(run), testing::AllOf(testing::HasSubstr("pca fitted on"), testing::Not(testing::HasSubstr(" Next: "))));
  for (const char* file : {"pca_components_nfg4.safetensors", "pictures/maps.png", "pictures/delay_residual.png", "summary.json"})
    EXPECT_TRUE(stdfs::exists(run.run_folder / file)) << file;
  // The test split is all of a folder: here the run's own files, so that its mean lies among theirs.
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Loaded loaded = load_for_inference(entry(), run.run_folder, nullptr, {{"recipe.test_dir", smoke_sky()}}, console);
  const Evaluation tested = evaluate(loaded, console, EvaluatedSplit::test, /*draws=*/true);
  EXPECT_LT(tested.metrics.at("test_loss"), tested.metrics.at("pca_logmse"));
  ASSERT_EQ(tested.pictures.size(), 2U);
  EXPECT_EQ(tested.pictures[0].name, "maps");
  std::ifstream table(run.run_folder / "history.csv");
  std::string head;
  std::getline(table, head);
  EXPECT_EQ(head, "epoch,train_loss,val_loss,seconds,samples_per_s,corr,residual_power,pca_corr");
}

TEST(Learning, ANetworkThatAnswersZeroIsToldOnce) {  // as it does where the target is far beyond its reach
  const RunOutcome run =
      train(untried({{"recipe.scale", 1e9}, {"train.max_steps", 10}, {"train.validate_every", 2}, {"precision.dtype", "fp32"}}),
            "pinned");
  const std::string log = log_of(run);
  const auto first = log.find(kPinned);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find(kPinned, first + 1), std::string::npos);
  EXPECT_THAT(log.substr(first - 200, 1000), testing::HasSubstr("\"step\":6"));
}

TEST(Learning, ReadersRecomputeAndStoredComponentsDoNotChangeARun) {
  const Json few = untried({{"train.max_steps", 6}, {"train.validate_every", 3}, {"precision.dtype", "fp32"}});
  const auto with = [&](Json more, const std::string& name) {
    more.update(few);
    return train(more, name).summary;
  };
  const Json plain = with({{"data.workers", 0}}, "readers_0");
  for (const int readers : {1, 4}) {
    EXPECT_EQ(with({{"data.workers", readers}}, "readers_" + std::to_string(readers)).at("state_sha256"),
              plain.at("state_sha256"));
  }
  const Json again = with({{"memory.recompute", Json::array({"all"})}}, "recompute");
  EXPECT_EQ(again.at("loss"), plain.at("loss"));
  EXPECT_EQ(again.at("metrics").at("val_loss"),
            plain.at("metrics").at("val_loss"));  // in evaluation mode: running statistics too
  const std::string file = (base() / "readers_0" / "pca_components_nfg4.safetensors").string();
  EXPECT_EQ(with({{"recipe.pca_components_path", file}}, "components").at("loss"), plain.at("loss"));
}

TEST(Learning, Fp16FollowsFp32) {
  const auto in = [](const char* dtype) {
    return train(
        untried({{"train.max_steps", 12}, {"train.validate_every", 12}, {"precision.dtype", dtype}, {"optim.ema_decay", 0.5}}),
        dtype);
  };
  const RunOutcome fp16 = in("fp16");
  EXPECT_LT(fp16.summary.at("skipped_steps").get<double>(), 10.0) << "the loss scale finds its place";
  EXPECT_NEAR(metric(fp16, "val_loss"), metric(in("fp32"), "val_loss"), 0.1);
}

TEST(Learning, AResumedRunIsTheUninterruptedOne) {
  const auto steps = [](int count) {
    return untried({{"train.max_steps", count}, {"train.validate_every", 2}, {"precision.dtype", "fp32"}});
  };
  const Json whole = train(steps(4), "whole").summary;
  (void)train(steps(2), "half");
  EXPECT_EQ(train(steps(4), "half", /*goes_on=*/true).summary.at("state_sha256"), whole.at("state_sha256"));
}

// Visibilities of the simulated radio sky: what eleven components hold of them, known from elsewhere.
TEST(RealSky, ElevenComponentsHoldTheForeground) {
  const stdfs::path path = stdfs::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data" / "cosmology" / "PyGSM_Jy_downselect.uvh5";
  if (!stdfs::exists(path)) GTEST_SKIP() << "no " << path;
  const std::vector<std::string> names = {"/Data/visdata"};
  const auto file = hdf5::File::open(path, names);
  const Shape shape = file->dataset(names[0]).shape;
  ASSERT_EQ(shape, (Shape{500, 1, 128, 1}));
  at::Tensor stored = at::empty(shape, at::kComplexDouble);
  const Shape zero(4, 0);
  file->read(names[0], zero, shape, {static_cast<std::byte*>(stored.mutable_data_ptr()), stored.nbytes()});
  const at::Tensor sky = stored.view({100, 5, 128}).permute({1, 2, 0}).contiguous();  // (baselines, frequencies, times)
  const auto explained = [](const at::Tensor& x) {
    nn::PcaFit fit;
    fit.add(nn::as_pixels(x.contiguous()));
    return fit.finish(11).variance_explained();
  };
  EXPECT_NEAR(explained(sky), 0.99999999813, 1e-9);
  EXPECT_NEAR(explained(sky.narrow(0, 1, 4)), 0.99999833257, 1e-9);  // without the auto-correlation
}

}  // namespace
}  // namespace millrace::recipes::cosmology
