#include <gmock/gmock.h>

#include "millrace/doctor/detail/sound_run.h"
#include "millrace/doctor/verdict.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A sound run of a script on four cores: 9.5 s of work of one thread, two workers.
Evidence script() {
  Evidence e = sound();
  e.times.step_ms_p50 = 95;
  e.work_cpu_seconds = 9.5;
  e.input = {.readers = 2, .read_seconds = 2, .read_cpu_seconds = 1};
  e.script = Script{.path = "train.py", .command = "python train.py"};
  e.script->loader = Script::Loader{.workers = 2, .persistent = true, .pinned = true, .batch_size = 16, .where = "train.py:31"};
  return e;
}

Evidence script_with(Phase phase, double seconds) {
  Evidence e = script();
  e.times.seconds[static_cast<std::size_t>(phase)] += seconds;
  e.times.wall += seconds;
  return e;
}

std::vector<std::string> ids_of(const Evidence& e) {
  std::vector<std::string> ids;
  for (const Finding& finding : findings_of(e)) ids.push_back(finding.id);
  return ids;
}

TEST(RulesOfScripts, ASoundScriptHasNoFinding) {
  Evidence e = script();
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.script->loader->worker_threads = 1;
  e.script->faults = Script::Faults{.minor_per_step = 200, .system_cpu_share = 0.02};
  e.script->item_calls = Script::ItemCalls{.count = 2, .seconds = 0.001};
  e.script->python = Script::PythonLooks{.gil_share = 0.1, .samples = 500};
  e.script->kept_graphs = Script::KeptGraphs{};
  EXPECT_THAT(findings_of(e), IsEmpty());
  EXPECT_EQ(verdict_on(e)["verdict"], "Nothing was found that slows the run down: backward 53 %, forward 42 %, optimizer 5 %.");
}

// The remedy in each dialect, as its user types it.
TEST(RulesOfScripts, WorkersAreAskedForInEachDialect) {
  Evidence e = script_with(Phase::data_wait, 20);
  e.input = {.readers = 1, .read_seconds = 29, .read_cpu_seconds = 1};
  e.script->loader->workers = 1;
  const std::vector<std::string> changes = {
      "DataLoader(..., num_workers=4, persistent_workers=True)", "DataLoader(..., num_workers=4, persistent_workers=True)",
      "TrainingArguments(..., dataloader_num_workers=4, dataloader_persistent_workers=True)",
      "DataLoader(..., num_workers=4, persistent_workers=True)"};
  for (std::size_t i = 0; i < kDialects.size(); ++i) {
    e.script->dialect = static_cast<Dialect>(i);
    const Finding finding = first(e, "few_readers");
    EXPECT_EQ(finding.change->text, changes[i]);
    EXPECT_EQ(finding.remedy, "try " + changes[i] + " in train.py:31");
    EXPECT_EQ(finding.key, "");
    expect_gain(finding, 20.0 / 29.5);
  }
  e.script->dialect = Dialect::trainer;
  const Json json = to_json(first(e, "few_readers"));
  EXPECT_EQ(json["call"], "TrainingArguments");
  EXPECT_EQ(json["set"], Json::parse(R"({"dataloader_num_workers": 4, "dataloader_persistent_workers": true})"));
  EXPECT_EQ(json["where"], "train.py:31");
  EXPECT_FALSE(json.contains("key") || json.contains("command") || json.contains("replace"));
}

// A step uses one of two cores, and samples are decompressed. With two workers, the measured script took 0.51 and 0.46 of the
// time.
TEST(RulesOfScripts, AStepOnOneCoreLeavesTheOtherForReading) {
  Evidence e = script_with(Phase::data_wait, 8.5);
  e.cores = 2;
  e.input = {.readers = 0, .read_seconds = 8.5, .read_cpu_seconds = 8.5};
  e.script->loader->workers = 0;
  const Finding finding = first(e, "no_readers");
  EXPECT_EQ(finding.change->set["num_workers"], 2);
  expect_gain(finding, 0.47);
  e.work_cpu_seconds.reset();  // the step then counts as work on both cores
  expect_gain(first(e, "no_readers"), 0.24);
}

// Measured on two cores: if a step uses both, workers that decompress gain next to nothing, or cost time.
TEST(RulesOfScripts, AStepOnAllCoresIsHeldUpByReadersThatCompute) {
  Evidence e = script_with(Phase::data_wait, 8.5);
  e.cores = 2;
  e.work_cpu_seconds = 18;
  e.input = {.readers = 0, .read_seconds = 8.5, .read_cpu_seconds = 8.5};
  e.script->loader->workers = 0;
  const Finding finding = first(e, "no_readers");
  EXPECT_LT(finding.gain->likely, 0.12);
  e.input.read_cpu_seconds = 0.5;  // readers that only wait do not delay the step
  expect_gain(first(e, "no_readers"), 8.0 / 18);
}

// If reading takes so little time, a batch from another process takes longer.
TEST(RulesOfScripts, ReadingThatTakesNoTimeWantsNoWorkers) {
  Evidence e = script_with(Phase::data_wait, 1.5);
  e.times.steps = 10'000;
  e.input = {.readers = 0, .read_seconds = 1.5, .read_cpu_seconds = 1.5};
  e.script->loader->workers = 0;
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.times.steps = 100;
  expect_gain(first(e, "no_readers"), (1.5 - 0.04) / 11);
}

TEST(RulesOfScripts, WorkersThatStartInEachPass) {
  Evidence e = script_with(Phase::data_wait, 5);
  Script::Loader& loader = *e.script->loader;
  loader.persistent = false;
  loader.epochs = 10;
  loader.first_batch_seconds = 4.68;  // summed over nine passes
  loader.usual_batch_seconds = 0.001;
  loader.sample_seconds = 0.00125;  // 16 samples take 20 ms
  const Finding finding = first(e, "workers_respawn");
  EXPECT_EQ(finding.change->text, "DataLoader(..., persistent_workers=True)");
  EXPECT_THAT(finding.what, HasSubstr("2 workers are started again in each of 10 passes"));
  expect_gain(finding, 4.5 / 14.5);
  EXPECT_THAT(ids_of(e), Not(testing::Contains("input_bound"))) << "the readers keep up";
  EXPECT_THAT(finding.what, HasSubstr("the first batch of a pass comes after 520 ms, others after 1 ms"));
  loader.workers = 1;
  EXPECT_THAT(first(e, "workers_respawn").what, HasSubstr("1 worker is started again"));
  loader.slow_start_seconds = 1;
  expect_gain(first(e, "workers_respawn"), 5.5 / 14.5);
  loader.epochs = 1;
  EXPECT_THAT(ids_of(e), Not(testing::Contains("workers_respawn")));
}

// A pass begins with idle workers. Faster reading changes little if later batches are ready in time.
TEST(RulesOfScripts, WaitingAtTheBeginningOfPassesIsNoSlowReading) {
  Evidence e = script_with(Phase::data_wait, 3);
  e.input.read_seconds = 8;
  Script::Loader& loader = *e.script->loader;
  loader.epochs = 10;
  loader.usual_batch_seconds = 0.001;
  EXPECT_THAT(ids_of(e), testing::Contains("input_bound"));
  loader.first_batch_seconds = 2.5;
  EXPECT_THAT(ids_of(e), Not(testing::Contains("input_bound")));
  loader.first_batch_seconds = 1.009;
  expect_gain(first(e, "input_bound"), 2.0 / 12.5);
}

TEST(RulesOfScripts, MoreWorkersThanTheStepsNeed) {
  Evidence e = script_with(Phase::data_wait, 5);
  e.input.readers = e.script->loader->workers = 16;
  e.script->loader->persistent = false;
  e.script->loader->epochs = 2;
  e.script->loader->first_batch_seconds = 4;
  const Finding finding = first(e, "too_many_workers");
  EXPECT_EQ(finding.change->text, "DataLoader(..., num_workers=1, persistent_workers=True)");
  expect_gain(finding, 4.0 / 14.5);
  EXPECT_THAT(ids_of(e), Not(testing::Contains("workers_respawn"))) << "it has the same remedy";
}

// Workers hand over large volumes. Without workers, the loop reads them faster and has the cores for itself.
TEST(RulesOfScripts, WorkersThatCostMoreThanTheyRead) {
  Evidence e = script_with(Phase::data_wait, 10);
  e.core_wait_seconds = 4;
  e.others = 0;
  e.input = {.readers = 2, .read_seconds = 3, .read_cpu_seconds = 2};
  const Finding finding = first(e, "too_many_workers");
  EXPECT_EQ(finding.change->text, "DataLoader(..., num_workers=0, persistent_workers=False)");
  expect_gain(finding, 1 - (9.5 - 4 + 3) / 19.5);
  e.others = 0.3;
  EXPECT_THAT(ids_of(e), Not(testing::Contains("too_many_workers"))) << "the workers may wait for the cores of other programs";
}

// A step of 9.5 s that sleeps most of the time waits for a core only while it needs one.
TEST(RulesOfScripts, AStepThatSleepsHasLittleToGainFromItsNeighboursEnd) {
  Evidence e = script();
  e.others = 0.5;
  e.core_wait_seconds = 0.19;
  expect_gain(first(e, "neighbours"), 0.02 * 1.25);
  e.core_wait_seconds = 9;
  expect_gain(first(e, "neighbours"), 0.5 * 1.25);
}

TEST(RulesOfScripts, FewerThreadsBesideOtherPrograms) {
  Evidence e = script();  // four cores
  e.others = 0.7;
  e.script->threads = 4;
  const Finding finding = first(e, "neighbours");
  EXPECT_THAT(finding.what, HasSubstr("and torch's 4 threads then wait for the thread that has no core"));
  EXPECT_THAT(finding.remedy, HasSubstr("; else try OMP_NUM_THREADS=1 python train.py"));
  EXPECT_EQ(to_json(finding)["environment"]["OMP_NUM_THREADS"], "1");
  e.others = 0.35;
  EXPECT_EQ(first(e, "neighbours").change->environment["OMP_NUM_THREADS"], "3");
  e.others = 0.2;
  EXPECT_FALSE(first(e, "neighbours").change) << "four threads still have most of the cores";
  e.others = 0.7;
  e.script->threads = 1;
  EXPECT_FALSE(first(e, "neighbours").change);
  e.script->threads = 4;
  e.on_gpu = true;
  EXPECT_FALSE(first(e, "neighbours").change);
}

// The writer's thread runs while the loop computes on all cores.
TEST(RulesOfScripts, AWriterOfLogLinesTakesCoresToo) {
  Evidence e = script_with(Phase::log, 4);
  e.input = {};
  e.script->loader.reset();
  e.script->logs = Script::Deed{.count = 100, .seconds = 4, .where = "train.py:66"};
  e.others = 0.01;
  e.core_wait_seconds = 3.5;
  const double share = 4 / 13.5, waited = 3.5 / 13.5 - 0.01;
  const Finding finding = first(e, "log_often");
  EXPECT_THAT(finding.what,
              HasSubstr("; for another 25 % of the time the loop waits for a core that the thread of the event writer uses"));
  expect_gain(finding, (share + waited) * 0.99);
  e.core_wait_seconds = 8;
  expect_gain(first(e, "log_often"), 2 * share * 0.99);
  e.core_wait_seconds = 0.3;
  expect_gain(first(e, "log_often"), share * 0.99);
  e.core_wait_seconds = 3.5;
  e.input.readers = 2;
  expect_gain(first(e, "log_often"), share * 0.99);
}

// The user can change the script, but seldom what other programs do.
TEST(RulesOfScripts, WhatTheUserCanChangeComesBeforeNeighbours) {
  Evidence e = script_with(Phase::data_wait, 2);
  e.input = {.readers = 0, .read_seconds = 2, .read_cpu_seconds = 0.2};
  e.script->loader->workers = 0;
  e.others = 0.7;
  EXPECT_THAT(ids_of(e), testing::ElementsAre("no_readers", "neighbours"));
  EXPECT_LT(findings_of(e)[0].gain->likely, findings_of(e)[1].gain->likely);
}

TEST(RulesOfScripts, AStepsTimeBesideNeighboursIsNoTrend) {
  Evidence e = script();
  e.step_ms = {100, 100, 101, 100, 130, 131, 129, 130, 160, 161, 160, 162};
  e.others = 0.05;
  EXPECT_THAT(ids_of(e), testing::Contains("slowing_down"));
  e.others = 0.15;
  EXPECT_THAT(ids_of(e), Not(testing::Contains("slowing_down")));
}

// Validations take 4 s in 13.5: 3 s of waiting for a disk, 1 s of work.
TEST(RulesOfScripts, AValidationThatReadsItsOwnBatches) {
  Evidence e = script_with(Phase::validate, 4);
  e.script->validation_input =
      Script::ValidationInput{.wait_seconds = 3, .read_seconds = 3, .read_cpu_seconds = 0.1, .where = "train.py:40"};
  const Finding finding = first(e, "validation_input");
  EXPECT_EQ(finding.what, "validations wait for data 22 % of the time: their DataLoader reads in the loop's own thread");
  EXPECT_EQ(finding.remedy, "try DataLoader(..., num_workers=4, persistent_workers=True) in train.py:40");
  expect_gain(finding, 3 / 13.5);
  e.cores = 1;
  e.script->validation_input->read_cpu_seconds = 3;
  EXPECT_THAT(ids_of(e), IsEmpty()) << "workers have no core of their own";
  e.cores = 4;
  EXPECT_EQ(first(e, "validation_input").change->set["num_workers"], 4);
  e.script->validation_input->workers = 1;
  EXPECT_THAT(ids_of(e), IsEmpty());
  e.script->validation_input->workers = 0;
  e.script->validation_input->wait_seconds = 1;
  EXPECT_THAT(ids_of(e), IsEmpty()) << "little is to be gained";
}

TEST(RulesOfScripts, WorkersOfManyThreads) {
  Evidence e = script_with(Phase::data_wait, 3);
  e.input.read_seconds = 12;
  e.script->loader->worker_threads = 8;
  const Finding finding = first(e, "threads_in_workers");
  EXPECT_EQ(finding.change->text, "DataLoader(..., worker_init_fn=lambda worker: torch.set_num_threads(1))");
  EXPECT_EQ(to_json(finding)["set"]["worker_init_fn"]["code"], "lambda worker: torch.set_num_threads(1)");
  EXPECT_FALSE(finding.gain);
  e.script->loader->worker_threads = 1;
  EXPECT_THAT(ids_of(e), Not(testing::Contains("threads_in_workers")));
  e.script->loader->worker_tasks = 11;
  EXPECT_THAT(first(e, "threads_in_workers").remedy, HasSubstr("cv2.setNumThreads(0)"));
  e = script();
  e.script->loader->worker_threads = 8;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "they hold up nothing";
}

TEST(RulesOfScripts, CopiesToAGpuFromMemoryThatIsNotPinned) {
  Evidence e = script_with(Phase::copy, 2);
  e.script->loader->pinned = false;
  EXPECT_THAT(ids_of(e), testing::ElementsAre("copy_bound")) << "there is no GPU";
  e.on_gpu = true;
  const Finding finding = first(e, "not_pinned");
  EXPECT_EQ(finding.change->set, Json::parse(R"({"pin_memory": true})"));
  expect_gain(finding, 0.7 * 2 / 11.5);
  EXPECT_THAT(ids_of(e), testing::ElementsAre("not_pinned"));
}

TEST(RulesOfScripts, ValuesThatTheLoopReads) {
  Evidence e = script();
  e.on_gpu = true;
  e.times.step_ms_p50 = 10;
  e.launches = Evidence::Launches{.host_ms = 4, .device_ms = 6};
  e.script->item_calls = Script::ItemCalls{.count = 100, .seconds = 5, .where = "train.py:40", .line = "total += loss.item()"};
  const Finding finding = first(e, "item_in_loop");
  EXPECT_EQ(finding.change->text, "total += loss.detach()");
  EXPECT_EQ(to_json(finding)["replace"], Json({{"total += loss.item()", "total += loss.detach()"}}));
  EXPECT_THAT(finding.what, HasSubstr("single values of tensors (train.py:40), 1 in a step, and waits for them 53 %"));
  expect_gain(finding, 0.4);
  e.script->item_calls->line = "total = loss.item() + other.item()";
  EXPECT_EQ(first(e, "item_in_loop").change->text, "total = loss.detach() + other.detach()");
  e.script->item_calls->count = 2;  // values are read at log lines
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(RulesOfScripts, ValuesThatTheLoopReadsOnACpu) {
  Evidence e = script();
  e.script->item_calls = Script::ItemCalls{.seconds = 0.1, .where = "train.py:40", .line = "total += loss.item()"};
  EXPECT_THAT(findings_of(e), IsEmpty());
  e.script->item_calls->seconds = 4.75;
  const Finding finding = first(e, "item_in_loop");
  EXPECT_EQ(finding.remedy, "try computing with whole tensors instead of single values in train.py:40");
  expect_gain(finding, 0.5);
}

TEST(RulesOfScripts, TimeInPythonsOwnCode) {
  Evidence e = script();
  e.script->python = Script::PythonLooks{.gil_share = 0.8, .samples = 500, .where = "train.py:52", .where_share = 0.6};
  const Finding line = first(e, "gil_bound");
  EXPECT_EQ(line.where, "train.py:52");
  expect_gain(line, 0.8);
  e.script->python->where_share = 0.05;
  const Finding spread = first(e, "gil_bound");
  EXPECT_THAT(spread.remedy, HasSubstr("torch.compile(model)"));
  EXPECT_EQ(spread.gain->low, 0);
  EXPECT_NEAR(spread.gain->high, 0.8, 1e-9);
}

// 28,000 page faults in a step of 235 ms, of which the remedy saved 39 ms.
TEST(RulesOfScripts, MemoryThatIsTakenAnewInEachStep) {
  Evidence e = script();
  for (double& seconds : e.times.seconds) seconds *= 23.5 / 9.5;
  e.times.wall *= 23.5 / 9.5;
  e.script->faults = Script::Faults{.minor_per_step = 28'000, .system_cpu_share = 0.09};
  const Finding finding = first(e, "page_faults");
  EXPECT_EQ(to_json(finding)["command"], "headrace run -- python train.py");
  EXPECT_EQ(finding.remedy, "try headrace run -- python train.py");
  expect_gain(finding, 0.167);
  e.script->faults->below_headrace_run = true;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(RulesOfScripts, AListThatKeepsGraphs) {
  Evidence e = script();
  e.memory.rising = "tensors hold more and more";
  e.script->kept_graphs =
      Script::KeptGraphs{.growth_bytes_per_step = 1e6, .list = "losses", .where = "train.py:44", .line = "losses.append(loss)"};
  const Finding finding = first(e, "list_growing");
  EXPECT_EQ(finding.change->text, "losses.append(loss.detach())");
  EXPECT_THAT(finding.what,
              HasSubstr("losses (train.py:44) keeps tensors with the graph that made them, 1.0 MB more in each step"));
  EXPECT_THAT(finding.what, HasSubstr("after 15,000 more steps"));
  EXPECT_THAT(ids_of(e), testing::ElementsAre("list_growing"));
  EXPECT_EQ(verdict_on(e)["findings"][0]["endangers_run"], true);
}

TEST(RulesOfScripts, DeedsThatAreTooFrequent) {
  Evidence e = script_with(Phase::snapshot, 5);
  e.script->saves = Script::Deed{.count = 10, .seconds = 5, .where = "train.py:50", .every_steps = 10};
  const Finding plain = first(e, "snapshot_often");
  EXPECT_EQ(plain.remedy, "try save every 500 steps in train.py:50");
  EXPECT_EQ(plain.change->set["every_steps"], 500);
  e.script->dialect = Dialect::trainer;
  EXPECT_EQ(first(e, "snapshot_often").change->text, "TrainingArguments(..., save_steps=500)");
  e.script->dialect = Dialect::lightning;
  EXPECT_EQ(first(e, "snapshot_often").change->text, "ModelCheckpoint(..., every_n_train_steps=500)");
  e = script_with(Phase::log, 2);
  e.script->logs = Script::Deed{.count = 100};
  EXPECT_EQ(first(e, "log_often").change->set["every_steps"], 50);
}

// A remedy for a script must not name a key of Millrace's config.
TEST(RulesOfScripts, NoRemedyIsAKeyOfOurs) {
  Evidence e = script_with(Phase::rest, 5);
  e.script->loader->pinned = true;
  e.script->threads = 16;
  e.memory.used = 15'500'000'000;
  e.numbers.skipped = 5;
  for (auto& line : lines_of(e)) line.gradient_norm = 1e4;
  e.memory.rising = "it grows";
  e.times.seconds[static_cast<std::size_t>(Phase::copy)] += 5;
  e.times.wall += 5;
  for (int i = 0; i < 12; ++i) e.step_ms[static_cast<std::size_t>(i)] = 50 + 10 * i;
  EXPECT_THAT(ids_of(e), testing::IsSupersetOf({"not_finite", "gradient_norm", "memory_high", "memory_growing", "copy_bound",
                                                "oversubscribed", "slowing_down", "unaccounted"}));
  for (const Finding& finding : findings_of(e)) {
    for (const char* key : {"--", "data.", "optim.", "device.", "memory.", "train.", "recipe"})
      EXPECT_THAT(to_text(finding), Not(HasSubstr(key)));
  }
}

TEST(RulesOfScripts, AVerdictSaysWhatComesFirst) {
  Evidence e = script_with(Phase::data_wait, 20);
  e.input = {.readers = 1, .read_seconds = 29, .read_cpu_seconds = 1};
  e.script->loader->workers = 1;
  const Json verdict = verdict_on(e);
  EXPECT_EQ(verdict["accounts"][0]["phase"], "data_wait");
  EXPECT_NEAR(verdict["accounts"][0]["share"].get<double>(), 20 / 29.5, 1e-9);
  EXPECT_THAT(
      verdict["verdict"].get<std::string>(),
      HasSubstr("in 1 worker. Try DataLoader(..., num_workers=4, persistent_workers=True) in train.py:31: about 68 % less time"));
  e.times.steps = 5;
  EXPECT_EQ(verdict_on(e)["verdict"], "Too short to judge: 5 steps in 30 s; the rules need ten steps and a second.");
}

}  // namespace
}  // namespace millrace::doctor
