#include "millrace/doctor/rules.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "millrace/doctor/detail/sound_run.h"
#include "millrace/doctor/watch.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Rules, ASoundRunHasNoFinding) { EXPECT_THAT(findings_of(sound()), IsEmpty()); }

TEST(Rules, EachHasItsPlaceInTheManual) {
  std::ifstream file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "docs/doctor.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const Rule& rule : rules()) EXPECT_THAT(page, HasSubstr("\n### " + std::string(rule.id) + "\n"));
}

TEST(Rules, AccountsOfARuleAreAccountsOfARun) {
  std::vector<std::string_view> accounts = {"", "others"};  // the time of other programs, "others", is subtracted from the phases
  for (std::size_t i = 0; i < telemetry::kPhases; ++i) accounts.push_back(name_of(static_cast<Phase>(i)));
  for (const Rule& rule : rules()) EXPECT_THAT(rule.accounts, testing::Each(testing::AnyOfArray(accounts))) << rule.id;
}

TEST(Rules, NothingIsSaidOfAFewSteps) {
  Evidence e = sound_with(Phase::data_wait, 50);
  e.times.steps = 5;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e = sound_with(Phase::rest, 2);
  e.times.steps = 5000;
  for (double& seconds : e.times.seconds) seconds *= 1e-2;
  e.times.wall *= 1e-2;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, ReadingInTheLoopsThreadWantsReaders) {
  Evidence e = sound_with(Phase::data_wait, 8);  // 9.5 s of work and 8 s of reading, which mostly waits
  e.input = {.readers = 0, .readers_by_user = true, .read_seconds = 8, .read_cpu_seconds = 0.5};
  const Finding finding = first(e, "no_readers");
  EXPECT_EQ(finding.key, "data.workers");
  EXPECT_EQ(finding.value, "2");
  EXPECT_THAT(finding.what, HasSubstr("wait for data 46 % of the time: reading what a step needs takes 80 ms"));
  expect_gain(finding, 8.0 / 17.5);
}

TEST(Rules, TooFewReadersForASlowDisk) {
  Evidence e = sound_with(Phase::data_wait, 20);
  e.input = {.readers = 1, .readers_by_user = true, .read_seconds = 29, .read_cpu_seconds = 1};
  const Finding finding = first(e, "few_readers");
  EXPECT_EQ(finding.value, "4");
  expect_gain(finding, 20.0 / 29.5);
}

TEST(Rules, ReadersThatComputeAreNotWorthMoreThanTheCores) {
  Evidence e = sound_with(Phase::data_wait, 20);
  e.cores = 2;
  e.input = {.readers = 1, .readers_by_user = true, .read_seconds = 29, .read_cpu_seconds = 28};
  const Finding finding = first(e, "few_readers");
  EXPECT_EQ(finding.value, "2");
  expect_gain(finding, 1 - (9.5 + 28.0 / 2) / 29.5);  // the work and half of the reading take place at once, on two cores
}

TEST(Rules, ReadersThatTheRunChoseAreNotToldToBeMore) {
  Evidence e = sound_with(Phase::data_wait, 5);
  e.input = {.readers = 4, .readers_by_user = false, .read_seconds = 50, .read_cpu_seconds = 45};
  EXPECT_THAT(first(e, "input_bound").remedy, HasSubstr("decode less"));
  expect_gain(first(e, "input_bound"), 5 / 14.5);
  e.input.cacheable_bytes = 64'000'000'000;
  EXPECT_EQ(first(e, "input_bound").value, "disk");
  expect_gain(first(e, "input_bound"), 5 / 14.5);
  e.input.epochs = 4;  // the first epoch fills the cache
  EXPECT_EQ(first(e, "input_bound").value, "disk");
  expect_gain(first(e, "input_bound"), 0.75 * 5 / 14.5);
  e.input.epochs = 1;
  EXPECT_EQ(first(e, "input_bound").key, "") << "nothing is read twice";
}

TEST(Rules, SamplesThatCantBeReadAreCounted) {
  Evidence e = sound();
  e.input.good_samples = 10'000;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.input.bad_samples = 12;
  EXPECT_THAT(
      first(e, "bad_samples").what,
      HasSubstr("12 samples could not be read so far and were skipped or replaced (data.bad_samples), compared with 10,000"));
  e.input.bad_samples = 1;
  EXPECT_THAT(first(e, "bad_samples").what,
              HasSubstr("1 sample could not be read so far and was skipped or replaced (data.bad_samples)"));
}

TEST(Rules, ACacheThatFitsAndIsOff) {
  Evidence e = sound_with(Phase::data_wait, 5);
  e.input = {.readers = 4,
             .readers_by_user = false,
             .read_seconds = 50,
             .read_cpu_seconds = 45,
             .cache_by_user = true,
             .cacheable_bytes = 2'000'000'000,
             .free_bytes = 10'000'000'000};
  const Finding finding = first(e, "cache_off");
  EXPECT_EQ(finding.value, "ram");
  expect_gain(finding, 5 / 14.5);
  e.input.epochs = 2;  // the first epoch fills the cache
  expect_gain(first(e, "cache_off"), 2.5 / 14.5);
  e.input.free_bytes = 3'000'000'000;
  EXPECT_NE(first(e, "input_bound").value, "ram");
}

TEST(Rules, OneSlowFileIsNamed) {
  Evidence e = sound_with(Phase::data_wait, 5);
  e.input = {.readers = 2,
             .readers_by_user = true,
             .read_seconds = 14,
             .read_cpu_seconds = 1,
             .slow = {{.file = "data/b.h5", .excess_seconds = 10, .times = 40}}};
  const Finding finding = first(e, "slow_file");
  EXPECT_THAT(finding.what, HasSubstr("data/b.h5: a sample of it takes 40 times as long"));
  expect_gain(finding, 5 / 14.5);
  EXPECT_EQ(findings_of(e).size(), 1U);
  e.input.slow.front().quick = 0.9;
  e.input.slow.front().sample = "data/b.h5 row 12";
  e.input.slow.front().sample_times = 70;
  const Finding single = first(e, "slow_sample");
  EXPECT_THAT(single.what, HasSubstr("for single samples of data/b.h5; its other samples are as quick as usual, and the slowest, "
                                     "data/b.h5 row 12, takes 70 times as long"));
  expect_gain(single, 5 / 14.5);
  EXPECT_EQ(findings_of(e).size(), 1U);
}

TEST(Rules, WhatIsDoneTooOften) {
  Evidence e = sound_with(Phase::log, 2);
  e.log = {.count = 100, .every_steps = 1};
  Finding finding = first(e, "log_often");
  EXPECT_EQ(finding.key, "log.every");
  EXPECT_EQ(finding.value, "50");  // 17 % if every step has one
  expect_gain(finding, 2 / 11.5 * 0.98);
  EXPECT_THAT(finding.what, HasSubstr("log lines take 17 % of the time, 20 ms each, every step"));

  e = sound_with(Phase::snapshot, 10);
  e.snapshot = {.count = 100, .every_steps = 1};
  finding = first(e, "snapshot_often");
  EXPECT_EQ(finding.key, "snapshot.every_steps");
  e.snapshot = {.count = 4, .every_steps = 0, .every_epochs = 2};
  EXPECT_EQ(first(e, "snapshot_often").key, "snapshot.every_epochs");
  e.snapshot.count = 1;
  EXPECT_THAT(findings_of(e), IsEmpty());

  e = sound_with(Phase::validate, 10);
  e.validation = {.count = 10, .every_steps = 10};
  finding = first(e, "validate_often");
  EXPECT_EQ(finding.key, "train.validate_every");
  EXPECT_EQ(finding.value, "100");
}

TEST(Rules, WhatTrialsSay) {
  Evidence e = sound();
  e.experiments.format = {.from = "fp32", .to = "bf16", .ratio = 2};
  Finding finding = first(e, "precision_unused");
  EXPECT_EQ(finding.value, "bf16");
  expect_gain(finding, 0.5 * 9 / 9.5);
  e.experiments.format->ratio = 1.1;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.experiments = {};
  e.experiments.batch = {.rows = 2, .fixed_share = 0.8, .batch_size = 2};
  finding = first(e, "small_batch");
  EXPECT_EQ(finding.value, "8");
  expect_gain(finding, 0.6 * 9 / 9.5);
  e.experiments.batch->fixed_share = 0.5;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.experiments = {};
  e.experiments.threads = {.asked = 16, .cores = 4, .ratio = 1.5};
  finding = first(e, "oversubscribed");
  EXPECT_EQ(finding.value, "4");
  expect_gain(finding, 1.0 / 3);
  e.experiments = {};
  e.experiments.layout = {.from = "contiguous", .to = "channels_last", .ratio = 1.25};
  finding = first(e, "layout");
  EXPECT_EQ(finding.key, "device.layout");
  EXPECT_EQ(finding.value, "channels_last");
  expect_gain(finding, 0.2 * 9 / 9.5);
  e.experiments.layout->ratio = 1.05;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, ASmallBatchInPiecesIsCutLessBeforeItBecomesAnotherOne) {
  Evidence e = sound();
  e.experiments.batch = {.rows = 2, .fixed_share = 0.8, .batch_size = 8, .micro_batches = 4, .accumulate = 6};
  Finding finding = first(e, "small_batch");
  EXPECT_EQ(finding.key, "") << "two keys at once";
  EXPECT_THAT(finding.remedy, HasSubstr("--data.batch_size=24 --optim.accumulate=2, the same global batch"));
  expect_gain(finding, 2.0 / 3 * 0.8 * 9 / 9.5);
  e.experiments.batch->accumulate = 1;
  finding = first(e, "small_batch");
  EXPECT_EQ(finding.key, "memory.micro_batches");
  EXPECT_EQ(finding.value, "1");
  expect_gain(finding, 0.6 * 9 / 9.5);
  e.experiments.batch->micro_batches = 7;
  expect_gain(first(e, "small_batch"), 6.0 / 7 * 0.8 * 9 / 9.5);
  e.experiments.batch->micro_batches = 1;
  EXPECT_EQ(first(e, "small_batch").value, "32");
  e.experiments.batch->batch_size = 0;
  EXPECT_EQ(first(e, "small_batch").key, "") << "the recipe's own";
}

TEST(Rules, SecondPassesWithoutNeed) {
  Evidence e = sound();
  e.memory.recompute_seconds = 2;
  e.memory.recompute_by_user = true;
  expect_gain(first(e, "recompute_unneeded"), 2 / 9.5);
  e.memory.room = 1'500'000'000;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, TensorsThatAreMadeInEveryStep) {
  Evidence e = sound();
  e.census =
      Evidence::Census{.operations = 200, .seconds = 0.09, .rebuilt_seconds = 0.018, .rebuilt_by = "aten::tril [256, 256]"};
  expect_gain(first(e, "rebuilt_tensors"), 0.2 * 9 / 9.5);
  e.census->rebuilt_seconds = 0.001;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, ValuesOfTheDeviceMatterOnAGpuAlone) {
  Evidence e = sound();
  e.census = Evidence::Census{.operations = 200, .host_reads = 3, .seconds = 0.09};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.on_gpu = true;
  EXPECT_THAT(first(e, "host_wait").what, HasSubstr("3 values"));
}

TEST(Rules, Neighbours) {
  Evidence e = sound();
  e.others = 0.4;
  expect_gain(first(e, "neighbours"), (0.4 + 0.64) / 2);
  e.others = 0.05;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, ATrendOfTheStepTimeIsNoBadMinute) {
  Evidence e = sound();
  e.step_ms = {100, 100, 101, 100, 130, 131, 129, 130, 160, 161, 160, 162};
  const Finding finding = first(e, "slowing_down");
  EXPECT_THAT(finding.what, HasSubstr("100 ms at first, 130 ms then, 161 ms now"));
  e.step_ms = {100, 100, 101, 100, 100, 101, 99, 100, 160, 161, 160, 162};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.step_ms = {100, 100, 101, 100, 160, 161, 160, 162, 100, 101, 99, 100};
  EXPECT_THAT(findings_of(e), IsEmpty());
}

// The step times already exclude the share of other programs. But other programs also use caches and memory, which makes steps
// longer, so a trend must be steeper.
TEST(Rules, ATrendIsSeenBesideNeighboursWhereItIsTooSteepToBeTheirs) {
  Evidence e = sound();
  e.others = 0.45;
  e.step_ms = {100, 100, 101, 100, 130, 131, 129, 130, 160, 161, 160, 162};
  std::vector<std::string> ids;
  for (const Finding& finding : findings_of(e)) ids.push_back(finding.id);
  EXPECT_THAT(ids, testing::UnorderedElementsAre("slowing_down", "neighbours"));
  e.step_ms = {100, 100, 101, 100, 115, 116, 115, 116, 130, 131, 129, 130};
  ids.clear();
  for (const Finding& finding : findings_of(e)) ids.push_back(finding.id);
  EXPECT_THAT(ids, testing::ElementsAre("neighbours"));
}

TEST(Rules, StepsThatTakeLongerThanInEarlierRuns) {
  Evidence e = sound();  // 95 ms a step
  e.earlier = {.step_ms = {60, 70, 71}, .newest = "runs/a"};
  e.run = "runs/b";
  const Finding finding = first(e, "slower_than_before");
  EXPECT_EQ(finding.what, "a step takes 95 ms, but took 70 ms in the median of 3 earlier runs of this config on this machine");
  EXPECT_THAT(finding.remedy, HasSubstr("millrace compare runs/a runs/b"));
  expect_gain(finding, 25.0 / 95 * 9 / 9.5);
  e.others = 0.2;
  EXPECT_EQ(first(e, "neighbours").id, "neighbours");
  EXPECT_EQ(findings_of(e).size(), 1U);
  e.others.reset();
  e.earlier.step_ms = {60, 70};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "two runs tell no habit";
  e.earlier.step_ms = {80, 85, 300};
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, BatchesThatTakeLongToTheDevice) {
  EXPECT_THAT(findings_of(sound_with(Phase::copy, 0.5)), IsEmpty());
  Evidence e = sound_with(Phase::copy, 2);
  EXPECT_FALSE(first(e, "copy_bound").gain) << "nobody looked at the batch";
  e.copied_floats = 1;
  const Finding finding = first(e, "copy_bound");
  EXPECT_THAT(finding.what, HasSubstr("17 % of the time; 100 % of their bytes are floats"));
  expect_gain(finding, 0.75 * 2 / 11.5);
  e.copied_floats = 0.4;
  expect_gain(first(e, "copy_bound"), 0.3 * 2 / 11.5);
  e.copied_floats = 0;
  EXPECT_FALSE(first(e, "copy_bound").gain) << "bytes already";
  EXPECT_THAT(first(e, "copy_bound").remedy, testing::StartsWith("use smaller crops"));
}

TEST(Rules, AGpuThatWaitsForTheHostOrIsHot) {
  Evidence e = sound();
  e.on_gpu = true;
  e.gpu = Evidence::Gpu{.utilisation = 0.85, .mhz = 1980, .most_mhz = 1980, .held_back = {}};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.gpu->utilisation = 0.4;
  const Finding idle = first(e, "gpu_idle");
  EXPECT_THAT(idle.what, HasSubstr("40 % of the time"));
  expect_gain(idle, 0.5 * 9 / 9.5);
  e.times.seconds[static_cast<std::size_t>(Phase::data_wait)] += 5;
  e.times.wall += 5;
  for (const Finding& finding : findings_of(e)) EXPECT_NE(finding.id, "gpu_idle") << "it waits for data";
  e = sound();
  e.gpu = Evidence::Gpu{.utilisation = 0.9, .mhz = 1200, .most_mhz = 1980, .held_back = {"heat (hardware)"}};
  EXPECT_THAT(first(e, "gpu_held_back").what, HasSubstr("1200 of 1980 MHz: heat (hardware)"));
  e.gpu->mhz = 1900;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, AGpuThatWaitsForLaunches) {
  Evidence e = sound();
  e.on_gpu = true;
  const auto told = [&e] {
    for (const Finding& finding : findings_of(e)) {
      if (finding.id == "launch_bound") return finding.what;
    }
    return std::string();
  };
  e.launches = Evidence::Launches{.host_ms = 9.8, .device_ms = 10, .behind_ms = 0.05};
  EXPECT_THAT(told(), HasSubstr("the host takes 9.8 ms to launch a step, and the GPU finishes it 0.05 ms later"));
  EXPECT_FALSE(first(e, "launch_bound").gain) << "nobody says how busy the GPU is";
  e.gpu = Evidence::Gpu{.utilisation = 0.2, .mhz = 0, .most_mhz = 0, .held_back = {}};
  EXPECT_THAT(told(), HasSubstr("computes 20 % of the time"));
  EXPECT_TRUE(first(e, "launch_bound").gain);
  for (const Finding& finding : findings_of(e)) EXPECT_NE(finding.id, "gpu_idle") << "one cause is told once";
  e.launches->host_ms = 3;
  EXPECT_EQ(told(), "") << "the GPU takes longer than its launches";
  e.launches->host_ms = 9.8;
  e.launches->behind_ms = 40;
  EXPECT_EQ(told(), "") << "the host waited for room in the GPU's queue";
  e.launches->behind_ms = 0.05;
  e.on_gpu = false;
  EXPECT_EQ(told(), "");
  e.on_gpu = true;
  e.times.seconds[static_cast<std::size_t>(Phase::data_wait)] += 5;
  e.times.wall += 5;
  EXPECT_EQ(told(), "") << "it waits for data";
}

TEST(Rules, TimeWithoutAnAccount) {
  Evidence e = sound_with(Phase::rest, 1.2);
  EXPECT_THAT(first(e, "unaccounted").what, HasSubstr("11 % of the time is in no account"));
  e.others = 0.04;
  EXPECT_THAT(first(e, "unaccounted").what, HasSubstr("11 %")) << "others had less than that";
  e.others = 0.5;
  EXPECT_EQ(findings_of(e).front().id, "neighbours");
  EXPECT_EQ(findings_of(e).size(), 1U);
}

TEST(Rules, TimeWithoutAnAccountIsNoFindingBelowAMinuteOrTenPercent) {
  Evidence e = sound_with(Phase::rest, 1.2);
  e.run_seconds = 59;
  EXPECT_THAT(findings_of(e), testing::IsEmpty());
  e.run_seconds = 61;
  EXPECT_EQ(first(e, "unaccounted").id, "unaccounted");
  e = sound_with(Phase::rest, 0.9);  // 9 % of the loop's time
  EXPECT_THAT(findings_of(e), testing::IsEmpty());
}

TEST(Rules, Memory) {
  Evidence e = sound();
  e.memory.used = 15'000'000'000;
  EXPECT_THAT(first(e, "memory_high").what, HasSubstr("94 % of the 16 GB"));
  e.experiments.recompute = {.saved_bytes = 4'000'000'000, .seconds = 0.019};
  const Finding finding = first(e, "recompute_needed");
  EXPECT_EQ(finding.value, "all");
  EXPECT_THAT(finding.what, HasSubstr("would save 4.0 GB and take about 20 % more time"));
  EXPECT_EQ(findings_of(e).size(), 1U);
  e.memory.used = 10'000'000'000;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.memory.used = 15'000'000'000;
  e.experiments.recompute->saved_bytes = 100'000'000;
  EXPECT_EQ(first(e, "memory_high").key, "") << "recompute saves next to nothing";
  e = sound();
  e.memory.rising = "tensors hold more";
  EXPECT_EQ(first(e, "memory_growing").what, "tensors hold more");
}

TEST(Rules, WhatThreatensTheRunIsBeforeWhatSlowsIt) {
  Evidence e = sound_with(Phase::data_wait, 5);
  e.input = {.readers = 4, .read_seconds = 50, .read_cpu_seconds = 45};
  e.others = 0.2;
  e.memory.rising = "x";
  e.numbers.skipped = 5;  // a gain of only 5 %, but the run itself is at stake
  e.targets = {{.key = "targets.samples_per_s", .what = "training", .unit = "samples/s", .asked = 2, .measured = 1}};
  std::vector<std::string> ids;
  for (const Finding& finding : findings_of(e)) ids.push_back(finding.id);
  EXPECT_THAT(ids, testing::ElementsAre("not_finite", "memory_growing", "input_bound", "neighbours", "target_missed"));
}

TEST(Rules, WhatHasNoGainStandsBehindWhatHasOne) {
  std::vector<Finding> findings = {{.id = "advice"},
                                   {.id = "small", .gain = gain_of(0.1)},
                                   {.id = "grave", .stake = Stake::run},
                                   {.id = "of others", .gain = gain_of(0.8), .stake = Stake::machine},
                                   {.id = "large", .gain = gain_of(0.6)},
                                   {.id = "grave with a gain", .gain = gain_of(0.9), .stake = Stake::run}};
  sort_findings(findings);
  std::vector<std::string> ids;
  for (const Finding& finding : findings) ids.push_back(finding.id);
  EXPECT_THAT(ids, testing::ElementsAre("grave", "grave with a gain", "large", "small", "of others", "advice"));
}

TEST(Finding, SaysItselfInOneLineAndAsJson) {
  const Finding finding{.id = "log_often",
                        .what = "log lines take 17 % of the time",
                        .remedy = "try --log.every=50",
                        .key = "log.every",
                        .value = "50",
                        .gain = gain_of(0.17)};
  EXPECT_EQ(to_text(finding),
            "log_often: log lines take 17 % of the time; try --log.every=50: about 17 % less time (14 % to 20 %)");
  EXPECT_EQ(to_json(finding)["page"], "docs/doctor.md#log_often");
  EXPECT_EQ(to_json(finding)["key"], "log.every");
  EXPECT_FALSE(to_json(Finding{.id = "x"}).contains("gain"));
}

TEST(Watch, AFindingHoldsFromTheSecondLookAndIsToldOnce) {
  Watch watch;
  const std::vector<Finding> found = {{.id = "a", .what = "1", .gain = gain_of(0.2)}};
  EXPECT_THAT(watch.look(found).fresh, IsEmpty());
  EXPECT_THAT(watch.holding(), IsEmpty());
  Watch::Change change = watch.look(found);
  ASSERT_EQ(change.fresh.size(), 1U);
  EXPECT_TRUE(change.changed);
  EXPECT_FALSE(watch.look(found).changed);
  EXPECT_FALSE(watch.look({}).changed);
  EXPECT_FALSE(watch.look({}).changed);
  EXPECT_EQ(watch.holding().size(), 1U);
  EXPECT_TRUE(watch.look({}).changed);
  EXPECT_THAT(watch.holding(), IsEmpty());
  EXPECT_THAT(watch.look(found).fresh, IsEmpty());
  change = watch.look(found);
  EXPECT_TRUE(change.changed);
  EXPECT_THAT(change.fresh, IsEmpty());
}

TEST(Watch, OneBadLookIsNothing) {
  Watch watch;
  const std::vector<Finding> found = {{.id = "a"}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(watch.look(found).changed);
    EXPECT_FALSE(watch.look({}).changed);
  }
}

}  // namespace
}  // namespace millrace::doctor
