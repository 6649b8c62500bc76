// Whole runs on sessions of known rates: the recipe's promises about learning, and equalities that need a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/device/device.h"
#include "millrace/train/run/run.h"
#include "recipes/neural_response/entry.h"
#include "recipes/neural_response/make_data.h"

namespace millrace::recipes::neural_response {
namespace {

namespace stdfs = std::filesystem;

stdfs::path base() { return stdfs::current_path() / "neural_response_runs"; }

// The sessions of the smoke preset, made once per program.
std::string smoke_sessions() {
  static const std::string folder = [] {
    const stdfs::path path = base() / "smoke_sessions";
    stdfs::remove_all(path);
    stdfs::create_directories(path);
    write_sample_sessions(*sample_sessions_of("smoke"), path, 0);
    return path.string();
  }();
  return folder;
}

RunOutcome train(const std::string& preset, const Json& values, const std::string& name) {
  const stdfs::path run = base() / name;
  stdfs::remove_all(run);
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  const auto aliases = aliases_of(row);
  config::Layers layers(schema, aliases);
  layers.add_values(row.defaults, "recipe");
  for (const auto& [one, preset_values] : row.presets) {
    if (one == preset) layers.add_values(preset_values, "preset " + preset);
  }
  layers.add_values({{"run.dir", run.string()}, {"data.dir", smoke_sessions()}, {"log.tensorboard", false}}, "test");
  layers.add_values(values, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{.entry = &row, .config = layers.resolve(), .preset = preset, .console = &console};
  return run_training(request);
}

// Values with which a short run has no trials, which take most of its time; the first test's run has them.
Json untried(Json values) {
  values.update(
      {{"precision.dtype", "fp32"}, {"device.kernels", "ours"}, {"device.layout", "contiguous"}, {"device.threads", 1}});
  return values;
}

double metric(const RunOutcome& outcome, const std::string& name) {
  return outcome.summary.at("metrics").at(name).at("last").get<double>();
}

// Of the validation after that step; NaN where there was none.
double metric_at(const RunOutcome& outcome, const std::string& name, std::int64_t step) {
  std::istringstream log(Fs::real().read_file(outcome.run_folder / "log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    const Json record = Json::parse(line, nullptr, false);
    if (record.is_object() && record.value("kind", "") == "validation" && record.at("step") == step)
      return record.at(name).get<double>();
  }
  return std::nan("");
}

std::size_t lines_of(const stdfs::path& file) {
  std::istringstream text(Fs::real().read_file(file));
  std::size_t count = 0;
  for (std::string line; std::getline(text, line);) ++count;
  return count;
}

TEST(Learning, TheSmokePresetLearnsTheRatesAndNotMoreThanThereIs) {
  const Json half = {{"precision.dtype", "fp32"}, {"train.max_steps", 200}, {"train.validate_every", 100}};
  const RunOutcome run = train("smoke", half, "smoke");
  EXPECT_EQ(run.summary.at("parameters"), 37'878);
  const double bits = metric(run, "val_bps_overall");
  std::cout << "bits per spike " << bits << " of " << ceiling_of(1) << "\n";
  EXPECT_GT(metric_at(run, "val_bps_overall", 100), 0.08);
  EXPECT_GT(bits, 0.15);
  EXPECT_LT(bits, ceiling_of(1) + 0.03);
  EXPECT_NEAR(bits, (metric(run, "val_bps/synthetic_00") + metric(run, "val_bps/synthetic_01")) / 2, 1e-12);
  EXPECT_EQ(metric(run, "groups_per_step"), 2);
  EXPECT_EQ(metric(run, "forwards_per_step"), 1);
  EXPECT_EQ(metric(run, "nan_skip/synthetic_00"), 0);
  EXPECT_EQ(lines_of(run.run_folder / "bps.csv"), 25U) << "a head and a row for each unit";
  for (const char* picture : {"rates", "receptive_fields", "calibration", "bits_per_spike", "readout_maps"})
    EXPECT_TRUE(stdfs::exists(run.run_folder / "pictures" / (std::string(picture) + ".png"))) << picture;
}

TEST(Learning, APassForEachSessionAndUnweightedMeansLearnTheSameWay) {
  const Json few = untried({{"train.max_steps", 6}, {"train.validate_every", 6}, {"train.validate_batches", 2}});
  const auto with = [&](const Json& more) {
    Json values = few;
    values.update(more);
    return train("smoke", values, "few");
  };
  const RunOutcome joined = with(Json::object());
  const RunOutcome apart = with({{"train.off", {"joined_core"}}});
  EXPECT_EQ(metric(apart, "forwards_per_step"), 2) << "as many as sessions";
  EXPECT_NEAR(metric(apart, "val_loss"), metric(joined, "val_loss"), 1e-5);
  EXPECT_NEAR(metric(with({{"recipe.bucket_mean", "unweighted"}}), "val_loss"), metric(joined, "val_loss"), 1e-2);
}

// What this process holds, looked at while something else goes on.
class Watched {
 public:
  struct Look {
    std::size_t threads = 0, files = 0;
    std::size_t bytes = 0;
  };
  Watched() : thread_([this](const std::stop_token& stop) { watch(stop); }) {}
  std::vector<Look> looks() {
    thread_.request_stop();
    thread_.join();
    return looks_;
  }

 private:
  static std::size_t entries_of(const char* folder) {
    return static_cast<std::size_t>(std::distance(stdfs::directory_iterator(folder), stdfs::directory_iterator()));
  }
  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      looks_.push_back({entries_of("/proc/self/task"), entries_of("/proc/self/fd"), device::resident_bytes()});
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::vector<Look> looks_;
  std::jthread thread_;  // last: it begins when all else is there
};

// Epochs of 20 steps, 200 of them in the long set: what the guide's history ended in, workers that pile up, does not begin. What
// a look meets by chance (a snapshot's thread and file) is left out by the median.
TEST(Learning, ASoakHoldsNoMoreThreadsFilesOrMemoryThanItBeganWith) {
  const char* const asked = std::getenv("MILLRACE_SOAK");
  const int epochs = asked == nullptr ? 30 : std::atoi(asked);
  const Json stages = Json::parse(R"([{"channels": 4, "stride": 2}])");
  (void)smoke_sessions();
  ::setenv("OMP_WAIT_POLICY", "active", 1);  // libgomp has read it: all that it says is that no idle threads come and go
  Watched watched;
  const RunOutcome run = train("smoke",
                               {{"precision.dtype", "fp32"},
                                {"device.layout", "contiguous"},
                                {"device.kernels", "ours"},
                                {"train.max_steps", 0},
                                {"train.epochs", epochs},
                                {"train.validate_every", 0},
                                {"train.validate_epochs", 5},
                                {"train.validate_batches", 2},
                                {"train.early_stop_patience", 0},
                                {"snapshot.every_steps", 0},
                                {"snapshot.every_epochs", 5},
                                {"recipe.steps_per_epoch", 20},
                                {"recipe.convnet.stages", stages},
                                {"data.workers", 2},
                                {"data.batch_size", 8}},
                               "soak");
  const std::vector<Watched::Look> looks = watched.looks();
  ::unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(run.summary.at("epochs"), epochs);
  ASSERT_GT(looks.size(), 100U);
  const auto median_of = [&](std::size_t tenth, auto member) {
    std::vector<std::size_t> values;
    for (std::size_t i = tenth * looks.size() / 10; i < (tenth + 1) * looks.size() / 10; ++i) values.push_back(looks[i].*member);
    std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
    return values[values.size() / 2];
  };
  constexpr std::size_t kEarly = 2, kLate = 8;  // tenths in which it neither begins nor ends
  std::cout << looks.size() << " looks: ";
  for (const std::size_t tenth : {kEarly, kLate})
    std::cout << median_of(tenth, &Watched::Look::threads) << " threads, " << median_of(tenth, &Watched::Look::files)
              << " files, " << static_cast<double>(median_of(tenth, &Watched::Look::bytes)) / 1e6
              << (tenth == kEarly ? " MB; late " : " MB\n");
  EXPECT_EQ(median_of(kLate, &Watched::Look::threads), median_of(kEarly, &Watched::Look::threads));
  EXPECT_EQ(median_of(kLate, &Watched::Look::files), median_of(kEarly, &Watched::Look::files));
  EXPECT_LT(median_of(kLate, &Watched::Look::bytes), median_of(kEarly, &Watched::Look::bytes) + 6'000'000);
}

TEST(Learning, PredictiveCodingHasItsTermAndFrozenVisionStays) {
  const Json few = untried({{"train.max_steps", 4}, {"train.validate_every", 4}, {"train.validate_batches", 2}});
  const RunOutcome predictive = train("smoke_pc", few, "pc");
  EXPECT_THAT(Fs::real().read_file(predictive.run_folder / "log.jsonl"), testing::HasSubstr("\"loss/prediction_error\""));
  // Its vision taken over by another run, and left alone there.
  Json after = few;
  after.update({{"recipe.pretrained", predictive.run_folder.string()},
                {"recipe.freeze_vision", true},
                {"snapshot.frozen", "leave_out"},
                {"recipe.convnet.final_activation", "softplus"}});
  const RunOutcome frozen = train("smoke", after, "frozen");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  const auto weights = [&](const RunOutcome& run) {
    Loaded loaded = load_for_inference(entry(), run.run_folder, nullptr, Json::object(), console);
    Tensors all;
    for (const auto& item : loaded.recipe->model().named_parameters()) all[item.key()] = item.value().detach().clone();
    return all;
  };
  const Tensors first = weights(predictive);
  const Tensors second = weights(frozen);
  std::size_t kept = 0;
  for (const auto& [name, value] : second) {
    if (!name.starts_with("adapters.") && !name.starts_with("frontend.") && !name.starts_with("convnet.")) continue;
    EXPECT_TRUE(at::equal(value, first.at(name))) << name;
    ++kept;
  }
  EXPECT_GT(kept, 9U);
  EXPECT_FALSE((second.at("readouts.0.std") == 1.0).all().item<bool>()) << "readouts are trained";
}

}  // namespace
}  // namespace millrace::recipes::neural_response
