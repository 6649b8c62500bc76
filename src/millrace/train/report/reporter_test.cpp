#include "millrace/train/report/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/train/report/log_keys.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;

class ReporterTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What a reporter with all sinks writes: lines on the console and records of log.jsonl.
  template <class Say>
  std::string said(Say say) {
    testing::internal::CaptureStdout();
    telemetry::Console console(telemetry::Console::Mode::plain);
    {
      const auto warn = [](const std::string&) {};
      telemetry::RunLog log(Fs::real(), folder_ / "log.jsonl", warn);
      Reporter reporter({.console = &console, .log = &log, .history = folder_ / "history.csv", .fs = &Fs::real()},
                        {.loss = "generator", .rate_unit = "volumes", .units_per_sample = 2.0, .history = {"corr"}});
      say(reporter);
    }
    return testing::internal::GetCapturedStdout();
  }
  std::vector<Json> records() const {
    std::vector<Json> all;
    std::ifstream file(folder_ / "log.jsonl");
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("millrace-reporter-" + std::to_string(::getpid()));
};

StepRecord two_objectives() {
  StepRecord record{.step = 40, .total_steps = 100, .epoch = 2};
  record.window = {.means = {{"generator", 1.5}, {"discriminator", 0.25}}, .seconds = 2.0, .steps = 10, .samples = 80};
  record.objectives = {{.name = "generator", .learning_rate = 1e-3, .gradient_norm = 2.0},
                       {.name = "discriminator", .learning_rate = 5e-4, .gradient_norm = 3.0, .spikes = 2, .loss_scale = 1024.0}};
  return record;
}

TEST_F(ReporterTest, EveryObjectiveIsInTheLineAndInTheLog) {
  const std::string text = said([](Reporter& reporter) { reporter.step(two_objectives()); });
  EXPECT_THAT(text, HasSubstr("step  40/100  epoch 2  loss 1.5000"));
  EXPECT_THAT(text, HasSubstr("80.0 volumes/s")) << "80 samples of two volumes in 2 s";
  EXPECT_THAT(text, HasSubstr("discriminator 0.2500"));
  EXPECT_THAT(text, HasSubstr("generator lr 0.001"));
  EXPECT_THAT(text, HasSubstr("discriminator lr 5e-04 spikes 2 scale 1024"));
  const Json record = records().at(0);
  EXPECT_EQ(record.at("kind"), "step");
  EXPECT_EQ(record.at("generator.lr"), 1e-3);
  EXPECT_EQ(record.at("discriminator.grad_norm"), 3.0);
  EXPECT_EQ(record.at("discriminator.spikes"), 2.0);
  EXPECT_EQ(record.at("discriminator.loss_scale"), 1024.0);
  EXPECT_FALSE(record.contains("lr"));
}

// 10 steps take 2 s, and a validation 6 s after each 20 steps of this process.
TEST_F(ReporterTest, TheTimeToTheEndHasTheValidationsInIt) {
  const std::string text = said([](Reporter& reporter) {
    StepRecord record = two_objectives();
    reporter.validation({.step = 0, .seconds = 100});
    reporter.step(record);
    record.step = 50;
    reporter.validation({.step = 50, .seconds = 6});
    reporter.step(record);
  });
  EXPECT_THAT(text, HasSubstr("ETA 12 s")) << "60 steps of 0.2 s, before the first validation";
  EXPECT_THAT(text, HasSubstr("ETA 25 s")) << "50 steps of 0.2 s, and 0.3 s for validations";
}

TEST_F(ReporterTest, ALineHasTheTermsOfTheFirstObjectiveAndNoMoreDecimalsThanItNeeds) {
  const std::string text = said([](Reporter& reporter) {
    StepRecord record = two_objectives();
    record.window.means = {{"generator", 1.5},      {"generator/kl", 13571.0122},   {"generator/fit", 0.02654},
                           {"discriminator", 0.25}, {"discriminator/fake", 0.2505}, {"train/psnr", 126.0585}};
    reporter.step(record);
  });
  EXPECT_THAT(text, HasSubstr("generator/kl 13571  generator/fit 0.02654  discriminator 0.2500  train/psnr 126.1  generator lr"));
  EXPECT_EQ(records().at(0).at("discriminator/fake"), 0.2505) << "the log has all";
}

TEST_F(ReporterTest, AnAbsentObjectiveIsSaidToBeOff) {
  const std::string text = said([](Reporter& reporter) {
    StepRecord record = two_objectives();
    record.objectives[1].present = false;
    record.window.means = {{"generator", 1.5}};
    reporter.step(record);
  });
  EXPECT_THAT(text, HasSubstr("discriminator off"));
  EXPECT_EQ(records().at(0).at("discriminator.absent"), true);
}

TEST_F(ReporterTest, OneObjectiveHasThePlainNames) {
  const std::string text = said([](Reporter& reporter) {
    StepRecord record = two_objectives();
    record.objectives.pop_back();
    record.window.means["generator"] = std::nan("");
    reporter.step(record);
  });
  EXPECT_THAT(text, HasSubstr("lr 0.001"));
  EXPECT_THAT(text, Not(HasSubstr("generator lr")));
  EXPECT_EQ(records().at(0).at("lr"), 1e-3);
  EXPECT_EQ(records().at(0).at("generator"), "nan") << "not a number, but not lost";
}

StepLog letters() {
  return {.name = "letters",
          .columns = {"a", "loss"},
          .row =
              [](const LoggedStep& step) {
                return std::vector<std::string>{"x", std::to_string(step.mean("generator"))};
              },
          .line = [](const LoggedStep& step) { return "Batch " + std::to_string(step.step); }};
}

TEST_F(ReporterTest, ARecipesOwnLogHasALineAndATableThatAResumeGoesOnWith) {
  const auto log = [this](std::int64_t kept, std::initializer_list<std::int64_t> steps) {
    testing::internal::CaptureStdout();
    telemetry::Console console(telemetry::Console::Mode::plain);
    {
      Reporter reporter({.console = &console,
                         .step_log = [this] { return folder_ / "letters.csv"; },
                         .steps_kept = kept,
                         .line = LogConfig::Line::original,
                         .fs = &Fs::real()},
                        {.loss = "generator", .step_log = letters()});
      for (const std::int64_t step : steps) {
        StepRecord record = two_objectives();
        record.logged.step = step;
        reporter.step(record);
      }
    }
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(log(0, {10, 20, 30}), "Batch 10\nBatch 20\nBatch 30\n");
  (void)log(20, {21});
  EXPECT_EQ(Fs::real().read_file(folder_ / "letters.csv"), "step,a,loss\n10,x,1.500000\n20,x,1.500000\n21,x,1.500000\n");
}

TEST_F(ReporterTest, ATableThatIsSomebodyElsesIsAWarning) {
  std::vector<std::string> warnings;
  StepLogWriter writer(
      letters(), &Fs::real(),
      []() -> std::filesystem::path {
        throw UsageError({"letters.csv is not ours", "", ""});
      },
      0, [&](const std::string& text) { warnings.push_back(text); });
  writer.row({.step = 1});
  writer.row({.step = 2});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("letters.csv is not ours"));
  EXPECT_TRUE(std::isnan(LoggedStep{}.mean("nothing")));
}

TEST_F(ReporterTest, AnEpochIsARowOfHistory) {
  (void)said([](Reporter& reporter) {
    // An earlier process made most of the first epoch. Its samples must not count in a rate of this process.
    reporter.epoch({.epoch = 1, .train_loss = 2.5, .seconds = 4, .samples = 90, .samples_here = 10}, 5,
                   {{"val_generator", 1.25}, {"corr", 0.5}});
    reporter.epoch({.epoch = 2, .train_loss = 2.0, .seconds = 4, .samples = 10, .samples_here = 10}, 10, {});
  });
  EXPECT_EQ(Fs::real().read_file(folder_ / "history.csv"),
            "epoch,train_loss,val_loss,seconds,volumes_per_s,corr\n1,2.5,1.25,4.000,5.0,0.5\n2,2,,4.000,5.0,\n");
  EXPECT_EQ(records().at(1).at("epoch"), 2);
}

// Without Facts::history the table has the metrics that the console shows. A metric that appears later becomes an additional
// column, also after a resume.
TEST_F(ReporterTest, ARowOfHistoryHasWhatTheConsoleShows) {
  const auto epochs = [this](std::int64_t kept, std::vector<std::pair<std::uint64_t, metrics::Means>> rows) {
    testing::internal::CaptureStdout();
    telemetry::Console console(telemetry::Console::Mode::plain);
    Reporter reporter({.console = &console, .history = folder_ / "shown.csv", .epochs_kept = kept, .fs = &Fs::real()}, {});
    for (const auto& [epoch, means] : rows)
      reporter.epoch({.epoch = epoch, .train_loss = 2, .seconds = 4, .samples_here = 8}, 5, means);
    (void)testing::internal::GetCapturedStdout();
    return Fs::real().read_file(folder_ / "shown.csv");
  };
  metrics::Means means = {{"val_loss", 1.5}, {"accuracy", 0.5}, {"recall/owl", 0.25}};
  means.add_quiet("recall/*");
  EXPECT_EQ(epochs(0, {{1, {}}, {2, means}}),
            "epoch,train_loss,val_loss,seconds,samples_per_s,accuracy\n1,2,,4.000,2.0,\n2,2,1.5,4.000,2.0,0.5\n");
  metrics::Means more = means;
  more["macro_f1"] = 0.75;
  const std::string resumed =
      "epoch,train_loss,val_loss,seconds,samples_per_s,accuracy,macro_f1\n1,2,,4.000,2.0,,\n2,2,,4.000,2.0,,\n"
      "3,2,1.5,4.000,2.0,0.5,0.75\n";
  EXPECT_EQ(epochs(1, {{2, {}}, {3, more}}), resumed) << "epoch 2 was made again";
  EXPECT_EQ(epochs(3, {{4, {}}}), resumed + "4,2,,4.000,2.0,,\n") << "the file knows its columns";
  const metrics::Means turned = {{"val_loss", 1.5}, {"macro_f1", 0.7}, {"iou", 0.1}, {"accuracy", 0.6}};
  EXPECT_EQ(epochs(3, {{4, turned}}),
            "epoch,train_loss,val_loss,seconds,samples_per_s,accuracy,macro_f1,iou\n1,2,,4.000,2.0,,,\n2,2,,4.000,2.0,,,\n"
            "3,2,1.5,4.000,2.0,0.5,0.75,\n4,2,1.5,4.000,2.0,0.6,0.7,0.1\n")
      << "earlier epochs stay where the recipe's order changed";
}

TEST_F(ReporterTest, AnEpochsLineHasTheSpeedOfTrainingAndOfValidation) {
  Meter::EpochRow row{.epoch = 3, .train_loss = 2.5, .seconds = 40, .samples = 800, .samples_here = 800, .steps_here = 100};
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.epoch(row, 300, {}, true); }),
              HasSubstr("epoch 3  40 s  training 2.50 it/s\n"));
  row.validation_seconds = 5;
  row.validation_batches = 60;
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.epoch(row, 300, {}, true); }),
              HasSubstr("epoch 3  45 s  training 2.50 it/s  validation 12.0 it/s\n"));
  EXPECT_EQ(said([&](Reporter& reporter) { reporter.epoch(row, 300, {}); }), "");
  EXPECT_EQ(records().back().at("it_per_s"), 2.5);
  (void)said([](Reporter& reporter) {
    reporter.validation({.step = 7, .means = {}, .judged = "", .best = {}, .seconds = 2, .batches = 5});
  });
  EXPECT_EQ(records().back().at("it_per_s"), 2.5);
}

// The memory of a run on a CPU must not be labelled as a GPU's.
TEST_F(ReporterTest, MemoryIsNamedByWhoseItIs) {
  StepRecord record = two_objectives();
  record.memory = {.on_gpu = false,
                   .counters = {.allocated_bytes = 2'000'000'000, .reserved_bytes = 0, .peak_bytes = 3'000'000'000}};
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.step(record); }), HasSubstr("memory 2.0 GB, at most 3.0 GB"));
  EXPECT_EQ(records().back().at("memory_rss"), 2'000'000'000);
  record.memory->on_gpu = true;
  record.memory->counters.reserved_bytes = 4'000'000'000;
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.step(record); }),
              HasSubstr("GPU 2.0 GB allocated, 4.0 GB reserved, peak 3.0 GB"));
}

TEST_F(ReporterTest, ALineOfMemorySaysHowBusyTheGpuIsWhereTheDriverTells) {
  StepRecord::Memory memory{
      .on_gpu = true,
      .counters = {.allocated_bytes = 2'000'000'000, .reserved_bytes = 4'000'000'000, .peak_bytes = 3'000'000'000}};
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.memory(memory, 1200); }), HasSubstr("reserved, peak 3.0 GB\n"));
  EXPECT_FALSE(records().back().contains("utilisation"));
  memory.gpu_use = 0.37;
  EXPECT_THAT(said([&](Reporter& reporter) { reporter.memory(memory, 1300); }),
              HasSubstr("step 1,300  GPU 2.0 GB allocated, 4.0 GB reserved, peak 3.0 GB, busy 37 %\n"));
  EXPECT_EQ(records().back().at("utilisation"), 0.37);
}

TEST_F(ReporterTest, ALogLineHasWhatTheDriverSaysOfTheGpu) {
  StepRecord record = two_objectives();
  (void)said([&](Reporter& reporter) { reporter.step(record); });
  EXPECT_FALSE(records().back().contains("gpu"));
  record.gpu = doctor::Nvml::Reading{
      .name = "NVIDIA H100", .utilisation = 0.92, .memory_used = 5'000'000'000, .celsius = 61, .watts = 412.5};
  (void)said([&](Reporter& reporter) { reporter.step(record); });
  const Json gpu = records().back().at("gpu");
  EXPECT_EQ(gpu.at("utilisation"), 0.92);
  EXPECT_EQ(gpu.at("memory_used_bytes"), 5'000'000'000);
  EXPECT_EQ(gpu.at("watts"), 412.5);
  EXPECT_EQ(gpu.at("celsius"), 61);
}

TEST_F(ReporterTest, AnEpochHasItsOwnPeakOfMemory) {
  (void)said([&](Reporter& reporter) { reporter.epoch({.epoch = 1, .peak_bytes = 7'000'000}, 5, {}); });
  EXPECT_EQ(records().back().at("peak_bytes"), 7'000'000);
}

TEST_F(ReporterTest, AValidationThatIsNotTheBestNamesTheBest) {
  const std::string text = said([](Reporter& reporter) {
    reporter.validation(
        {.step = 9, .means = {{"val_generator", 2.0}}, .judged = "val_generator", .gained = false, .best = {2.0, 1.5, 6}});
  });
  EXPECT_THAT(text, HasSubstr("validation  step 9  val_generator 2.0000  (best 1.5000 at step 6)"));
}

TEST_F(ReporterTest, TheLogDescribesTheMetricsOnceAndWhenTheyChange) {
  (void)said([](Reporter& reporter) {
    metrics::Means means{{"val_loss", 2.0}, {"size", 7.0}, {"psnr", 20.0}};
    means.set_best_is({{"psnr", metrics::Means::BestIs::highest}});
    Metric best;
    best.best_is = metrics::Means::BestIs::lowest;
    for (const std::int64_t step : {1, 2})
      reporter.validation({.step = step, .means = means, .judged = "val_loss", .best = best});
    means.set_quiet({"size"});
    reporter.validation({.step = 3, .means = means, .judged = "val_loss", .best = best});
  });
  std::vector<Json> described;
  for (const Json& line : records()) {
    if (line.at("kind") == "metrics") described.push_back(line);
  }
  ASSERT_EQ(described.size(), 2U);
  EXPECT_EQ(described[0].at("step"), 1);
  EXPECT_EQ(described[0].at("judged"), "val_loss");
  EXPECT_EQ(described[0].at("order"), Json({"val_loss", "size", "psnr"}));
  EXPECT_EQ(described[0].at("best_is"), (Json{{"psnr", "highest"}, {"val_loss", "lowest"}}));
  EXPECT_TRUE(described[0].at("quiet").empty());
  EXPECT_EQ(described[1].at("step"), 3);
  EXPECT_EQ(described[1].at("quiet"), Json::array({"size"}));
}

TEST_F(ReporterTest, AValidationsLineIsInTheRecipesOrderWithoutItsQuietNames) {
  const std::string text = said([](Reporter& reporter) {
    metrics::Means means{{"val_generator", 2.0}, {"zeal", 0.5}, {"recall/cat", 0.25}, {"corr", 0.75}, {"bits/units", 1200}};
    means.set_quiet({"recall/*"});
    reporter.validation({.step = 9, .means = means, .judged = "val_generator", .gained = true, .best = {2.0, 2.0, 9}});
  });
  EXPECT_THAT(text, HasSubstr("val_generator 2.0000  zeal 0.5000  corr 0.7500  bits/units 1,200\n"));
  EXPECT_EQ(records().at(0).at("recall/cat"), 0.25) << "the log has them all";
}

// The rehearsal refuses these names, so the list must have each key of a line that has every value it can have.
TEST_F(ReporterTest, TheListOfLogKeysHasEveryKeyOfALine) {
  (void)said([](Reporter& reporter) {
    StepRecord record = two_objectives();
    record.objectives.pop_back();
    record.objectives[0].spikes = 1;
    record.objectives[0].loss_scale = 8.0;
    record.objectives[0].present = false;
    record.window.means = {{"generator", 1.5}};
    record.window.others = 0.5;
    record.host_ms = 1.0;
    record.cache.emplace();
    record.gpu.emplace();
    for (const bool on_gpu : {false, true}) {
      record.memory = StepRecord::Memory{.on_gpu = on_gpu, .counters = {}};
      reporter.step(record);
    }
    metrics::Means means{{"val_generator", 2.0}, {"corr", 0.5}};
    means.set_version("corr", {.number = 2});
    reporter.validation({.step = 40, .means = means, .judged = "val_generator", .seconds = 1, .batches = 2});
    reporter.epoch({.epoch = 1, .train_loss = 2.5, .seconds = 4, .samples = 10, .samples_here = 10}, 40, means);
  });
  const std::vector<std::string> of_the_recipe = {"generator", "val_generator", "corr", "volumes_per_s"};
  for (const Json& line : records()) {
    if (line.at("kind") != "step" && line.at("kind") != "validation") continue;
    for (const auto& [key, value] : line.items())
      EXPECT_NE(is_log_key(key), std::ranges::find(of_the_recipe, key) != of_the_recipe.end()) << key;
  }
  const std::string history = Fs::real().read_file(folder_ / "history.csv");
  EXPECT_TRUE(history.starts_with("epoch,train_loss,val_loss,seconds,volumes_per_s,corr\n")) << history;
  for (const char* column : {"epoch", "train_loss", "seconds"}) EXPECT_TRUE(is_log_key(column)) << column;
}

}  // namespace
}  // namespace millrace
