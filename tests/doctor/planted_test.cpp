// The first finding for each planted fault is its rule's, and it is gone once the remedy is followed. Faults are sleeps where
// possible: no other program on the machine can shorten those.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "millrace/base/clock.h"
#include "millrace/device/device.h"
#include "millrace/precision/precision.h"
#include "patient.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Without what other programs on this machine do: that is a finding of its own.
std::vector<Json> findings_of(const RunOutcome& run) {
  std::vector<Json> findings;
  for (const Json& finding : run.summary.at("findings")) {
    if (finding["id"] != "neighbours") findings.push_back(finding);
  }
  return findings;
}

std::vector<std::string> ids_of(const RunOutcome& run) {
  std::vector<std::string> ids;
  for (const Json& finding : findings_of(run)) ids.push_back(finding["id"]);
  return ids;
}

struct Fault {
  const char* id;
  Json config;
  Json cure = Json::object();  // where the remedy is no value of a key: the fault taken out
  std::int64_t steps = 60;     // of the sick run; the mended one makes 120
  double write_ms = 0;
  bool first = true;  // before all other findings
  bool gone = true;   // with the remedy, whatever the machine
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.id; }

RunOutcome run(const Fault& fault, std::int64_t steps, const Json& more = Json::object()) {
  Json config = {{"train.max_steps", steps}};
  config.update(fault.config);
  config.update(more);
  const toys::TemporaryFolder folder;
  toys::SlowFs fs(Fs::real(), fault.write_ms);
  return toys::run(toys::patient(), folder.path(), config, false, &fs);
}

// Of the loop, for each sample of a step that counts.
double row_seconds(const RunOutcome& run) {
  const Json& accounts = run.summary.at("accounts");
  const double loop =
      run.summary.at("wall_s").get<double>() - accounts.at("startup").get<double>() - accounts.at("trials").get<double>();
  const auto steps = run.summary.at("steps").get<double>();
  return loop / (run.summary.at("samples").get<double>() * (steps - run.summary.at("skipped_steps").get<double>()) / steps);
}

bool was_alone(const RunOutcome& run) {
  constexpr double kBusy = 0.1;
  return run.summary.value("others", 0.0) < kBusy;
}

// How near the two are is told, for a machine may be busy with other things; that there is a gain, and no small part of it, holds
// on any. Beside other programs two runs can't be compared, unless these are the fault.
void tell(const Json& finding, const RunOutcome& sick, const RunOutcome& mended) {
  if (!finding.contains("gain")) return;
  EXPECT_GT(finding["gain"], 0.02);
  EXPECT_LT(finding["gain"], 1.0);
  const auto predicted = finding["gain"].get<double>();
  const double measured = 1 - row_seconds(mended) / row_seconds(sick);
  const auto id = finding["id"].get<std::string>();
  std::cout << id << ": predicted " << predicted << ", measured " << measured << "\n";
  const bool comparable = was_alone(mended) && (was_alone(sick) || id == "neighbours" || id == "oversubscribed");
  if (!comparable) return;
  EXPECT_GT(measured, predicted / 3) << finding;
}

Json finding_of(const RunOutcome& run, const std::string& id) {
  for (const Json& finding : run.summary.at("findings")) {
    if (finding["id"] == id) return finding;
  }
  ADD_FAILURE() << id << " is none of " << run.summary["findings"];
  return Json::object();
}

class Planted : public testing::TestWithParam<Fault> {};

TEST_P(Planted, IsNamedFirstAndGoneWithTheRemedy) {
  const Fault& fault = GetParam();
  const RunOutcome sick = run(fault, fault.steps);
  const std::vector<Json> findings = findings_of(sick);
  ASSERT_THAT(ids_of(sick), testing::Contains(fault.id)) << sick.summary["findings"];
  if (fault.first) {
    EXPECT_EQ(findings.front()["id"], fault.id) << sick.summary["findings"];
  }
  const Json finding = finding_of(sick, fault.id);
  Json cure = fault.cure;
  EXPECT_EQ(finding.contains("key"), cure.empty()) << finding;
  if (finding.contains("key")) {
    const auto value = finding["value"].get<std::string>();
    const Json parsed = Json::parse(value, nullptr, false);
    cure[finding["key"].get<std::string>()] = parsed.is_discarded() ? Json(value) : parsed;
    if (cure.contains("memory.recompute")) cure["memory.recompute"] = Json::array({value});
  }
  const RunOutcome mended = run(fault, 120, cure);
  if (fault.gone) {
    EXPECT_THAT(ids_of(mended), Not(testing::Contains(fault.id))) << mended.summary["findings"];
  }
  tell(finding, sick, mended);
}

Json with(Json config) {
  Json all = {{"patient.work_ms", 10}, {"patient.rows", 4096}};
  all.update(config);
  return all;
}

Json heavy(Json config) {
  Json all = {{"patient.width", 512}, {"patient.rows", 256}, {"data.batch_size", 128}, {"log.doctor_trials", 1.0}};
  all.update(config);
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Planted,
    testing::Values(
        Fault{"few_readers", with({{"data.workers", 1}, {"patient.read_ms", 4}})},
        Fault{"no_readers", with({{"data.workers", 0}, {"patient.read_ms", 2}})},
        Fault{"slow_file", with({{"data.workers", 1}, {"patient.slow_file_ms", 40}}), {{"patient.slow_file_ms", 0}}},
        Fault{"slow_sample", with({{"data.workers", 1}, {"patient.slow_sample_ms", 100}}), {{"patient.slow_sample_ms", 0}}},
        Fault{"cache_off",
              with({{"data.cache", "off"}, {"patient.decode_ms", 3}, {"patient.rows", 16}, {"data.batch_size", 16}})},
        Fault{"log_often", with({{"log.every", 1}}), Json::object(), 90, 2},
        Fault{"snapshot_often", with({{"snapshot.every_steps", 1}, {"snapshot.max_lag", 0}}), Json::object(), 30, 2},
        Fault{"slowing_down", with({{"patient.growing_ms", 0.2}}), {{"patient.growing_ms", 0}}, 100},
        Fault{"not_finite", with({{"patient.nan_every", 10}, {"optim.clip_norm", 1}}), {{"patient.nan_every", 0}}, 110},
        Fault{"memory_growing", with({{"patient.leak", 1'000'000}, {"patient.rows", 16}}), {{"patient.leak", 0}}, 110},
        Fault{"changing_shapes", with({{"patient.new_shapes", true}}), {{"patient.new_shapes", false}}, 110},
        Fault{"saturated_clamp", with({{"patient.clamp", 1e-6}}), {{"patient.clamp", 0}}, 110},
        Fault{"recompute_unneeded", heavy({{"memory.recompute", {"all"}}, {"patient.layers", 4}}), Json::object(), 400, 0, false},
        Fault{"layout", heavy({{"device.layout", "contiguous"}, {"patient.contiguous_ms", 30}}), Json::object(), 100, 0, false},
        Fault{"rebuilt_tensors", {{"patient.mask", 1200}, {"log.doctor_trials", 1.0}}, {{"patient.mask", 0}}, 400, 0, false},
        Fault{"small_batch",
              {{"data.batch_size", 2}, {"patient.small_operations", 2000}, {"log.doctor_trials", 1.0}},
              Json::object(),
              150,
              0,
              true,
              false}),
    [](const auto& of) { return std::string(of.param.id); });

TEST(PlantedWork, Fp32WhereHalfPrecisionIsFaster) {
  if (!precision::hardware_has_fast_bf16(at::kCPU, nullptr)) GTEST_SKIP() << "this CPU has no fast bf16";
  const Fault fault{"precision_unused", heavy({{"patient.width", 1024}, {"patient.rows", 1024}, {"data.batch_size", 512}})};
  const RunOutcome sick = run(fault, 40), mended = run(fault, 40, {{"precision.dtype", "bf16"}});
  // A CPU may have the instruction and gain nothing: without AMX, Intel's cores start half as many bf16 products as fp32 ones.
  const double gain = 1 - row_seconds(mended) / row_seconds(sick);
  if (!was_alone(sick) || !was_alone(mended)) GTEST_SKIP() << "other programs used the cores: the two runs can't be compared";
  if (gain < 0.3) GTEST_SKIP() << "bf16 takes " << 1 - gain << " of the time of fp32 here: nothing that must be found";
  tell(finding_of(sick, fault.id), sick, mended);
}

TEST(PlantedWork, MoreThreadsThanCores) {
  const int cores = device::cpu_info().physical_cores;
  const Fault fault{"oversubscribed", heavy({{"device.threads", 8 * cores}})};
  const RunOutcome sick = run(fault, 200);
  const RunOutcome mended = run(fault, 120, {{"device.threads", cores}});
  EXPECT_THAT(ids_of(mended), Not(testing::Contains("oversubscribed")));
  if (const Json finding = finding_of(sick, "oversubscribed"); !finding.empty()) tell(finding, sick, mended);
}

// Processes that never sleep, one for each CPU.
class Neighbours {
 public:
  Neighbours() {
    for (int i = 0; i < device::cpu_info().logical_cores; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) (void)steady_nanoseconds();
      }
      all_.push_back(child);
    }
  }
  ~Neighbours() {
    for (const pid_t child : all_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> all_;
};

TEST(PlantedWork, ANeighbourOnTheCores) {
  const Fault fault{"neighbours", heavy(Json::object())};
  RunOutcome sick;
  {
    const Neighbours neighbours;
    sick = run(fault, 300);
  }
  tell(finding_of(sick, "neighbours"), sick, run(fault, 150));
}

TEST(Doctor, ASoundRunHasNoFindingAndItsAccountsAddUp) {
  const toys::TemporaryFolder folder;
  const RunOutcome sound = toys::run(toys::patient(), folder.path(), with(Json::object()));
  double sum = 0, logged = 0;
  for (const auto& [name, seconds] : sound.summary.at("accounts").items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, sound.summary.at("wall_s").get<double>(), 1e-6);
  for (const Json& line : toys::log_of(folder.path(), "step")) {
    for (const auto& [name, seconds] : line.at("accounts").items()) logged += seconds.get<double>();
  }
  EXPECT_LE(logged, sum);
  EXPECT_GT(logged, 0.8 * sum);  // but for what came after the last line
  EXPECT_EQ(sound.summary.at("bound_by"), "forward");
  if (!was_alone(sound))
    GTEST_SKIP() << "other programs used the cores: they are a finding, and what they hold up may be another one";
  EXPECT_THAT(ids_of(sound), IsEmpty()) << sound.summary["findings"];
}

// A trial comes a second after the first line at the earliest.
TEST(Doctor, ATrialTellsWhatRecomputeWouldSave) {
  Json config = heavy({{"memory.recompute", {"none"}}, {"patient.layers", 4}, {"patient.work_ms", 10}, {"train.max_steps", 150}});
  const Json trials = toys::run(toys::patient(), "", config).summary.at("doctor").at("trials");
  ASSERT_TRUE(trials.contains("recompute")) << trials;
  EXPECT_TRUE(trials["recompute"].contains("saved_bytes"));  // nothing here: a layer's input is the output of the one before
  EXPECT_GT(trials["recompute"]["seconds"], 0);
  config["memory.recompute"] = Json::array({"auto"});
  EXPECT_FALSE(toys::run(toys::patient(), "", config).summary["doctor"]["trials"].contains("recompute"));
}

// A step of a hundredth of a second; 2 % of about 1.5 s are enough for one of them, and for no pair of ways in turns.
TEST(Doctor, ATrialIsMadeWhereItCanBeAffordedAlone) {
  const Json config = with({{"train.max_steps", 140}, {"log.doctor_trials", 0.02}});
  const Json summary = toys::run(toys::patient(), "", config).summary;
  const Json& trials = summary.at("doctor").at("trials");
  ASSERT_TRUE(trials.contains("census")) << trials;
  EXPECT_EQ(trials["census"]["host_reads"], 0) << "what a trial reads of its step is not the step's";
  EXPECT_GT(trials["census"]["operations"], 5);
  EXPECT_FALSE(trials.contains("batch")) << trials;
  EXPECT_FALSE(trials.contains("format")) << trials;
  const Json all = toys::run(toys::patient(), "", with({{"log.doctor_trials", 1.0}})).summary.at("doctor").at("trials");
  EXPECT_TRUE(all.contains("census")) << all;
  EXPECT_TRUE(all.contains("batch")) << all;
}

// Six of 64 samples are decoded anew in each epoch, and take many times what the others take from the cache.
TEST(Doctor, SamplesThatACacheHasNoRoomForAreNotSlow) {
  const RunOutcome run = toys::run(toys::patient(), "",
                                   {{"data.workers", 1},
                                    {"data.cache", "ram"},
                                    {"data.cache_bytes", 5664},
                                    {"patient.rows", 64},
                                    {"patient.decode_ms", 3},
                                    {"patient.work_ms", 1},
                                    {"train.max_steps", 600}});
  const auto hits = run.summary.at("cache").at("hit_rate").get<double>();
  EXPECT_GT(hits, 0.5);
  EXPECT_LT(hits, 0.95);
  EXPECT_THAT(ids_of(run), Not(testing::Contains(testing::AnyOf("slow_file", "slow_sample")))) << run.summary["findings"];
}

TEST(Doctor, BlocksOfTheModelShareOutForwardAndBackward) {
  const toys::TemporaryFolder folder;
  Json config = heavy({{"patient.layers", 3}, {"train.max_steps", 40}, {"optim.accumulate", 2}});
  const Json summary = toys::run(toys::patient(), folder.path(), config).summary;
  std::vector<std::string> names;
  double forward = 0, backward = 0;
  for (const Json& block : summary.at("blocks")) {
    names.push_back(block["block"]);
    forward += block["forward"].get<double>();
    backward += block["backward"].get<double>();
    EXPECT_GT(block["backward"].get<double>(), 0) << block;
  }
  EXPECT_THAT(names, testing::ElementsAre("layer0", "layer1", "layer2", "(outside)"));
  EXPECT_NEAR(forward, summary["accounts"]["forward"].get<double>(), 1e-9);
  EXPECT_NEAR(backward, summary["accounts"]["backward"].get<double>(), 1e-9);
  config["log.doctor"] = false;
  EXPECT_FALSE(toys::run(toys::patient(), "", config).summary.contains("blocks"));
}

TEST(Doctor, ATargetIsAFindingWhereItIsMissedAndAFigureOfTheSummaryInEachCase) {
  Json config = with({{"targets.samples_per_s", 1e9},
                      {"targets.train_it_per_s", 0.001},
                      {"targets.data_wait", 0.9},
                      {"targets.gpu_busy", 0.1},
                      {"device.name", "cpu"}});
  RunOutcome run = toys::run(toys::patient(), "", config);
  const std::string what = finding_of(run, "target_missed")["what"];
  EXPECT_THAT(what, HasSubstr("of 1.00G samples/s (targets.samples_per_s)"));
  EXPECT_THAT(what, Not(HasSubstr("it/s")));
  const Json targets = run.summary.at("targets");
  ASSERT_EQ(targets.size(), 4U);
  EXPECT_TRUE(targets[0].at("met") && targets[2].at("met")) << targets;
  EXPECT_TRUE(targets[3].at("measured").is_null() && !targets[3].at("met"))
      << "without a GPU nothing is known of it: " << targets;
  EXPECT_FALSE(targets[1].at("met")) << targets;
  const double loop = row_seconds(run) * run.summary.at("samples").get<double>();
  EXPECT_NEAR(targets[0].at("measured").get<double>() * loop, run.summary.at("steps").get<double>(), 12) << targets;
  config["targets.samples_per_s"] = 1;
  run = toys::run(toys::patient(), "", config);
  EXPECT_THAT(ids_of(run), Not(testing::Contains("target_missed"))) << run.summary["findings"];
}

TEST(Doctor, FindingsAreInTheLogWhenTheyBeginToHold) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::patient(), folder.path(),
                  with({{"data.workers", 0},
                        {"patient.read_ms", 2},
                        {"data.cache", "off"},
                        {"train.max_steps", 160},
                        {"patient.rows", 4096}}));
  const std::vector<Json> lines = toys::log_of(folder.path(), "findings");
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back()["findings"].dump(), HasSubstr("no_readers"));
}

TEST(Doctor, OffIsTheSameRunWithoutAWord) {
  const Json config = {{"train.max_steps", 40}, {"log.every", 1}, {"log.doctor_trials", 1.0}, {"patient.work_ms", 40}};
  Json off = config;
  off["log.doctor"] = false;
  const RunOutcome with_doctor = toys::run(toys::patient(), "", config);
  const RunOutcome without = toys::run(toys::patient(), "", off);
  EXPECT_EQ(with_doctor.summary["state_sha256"], without.summary["state_sha256"]);
  EXPECT_GT(with_doctor.summary["accounts"]["trials"].get<double>(), without.summary["accounts"]["trials"].get<double>() + 0.1)
      << "its trials were made";
  EXPECT_FALSE(without.summary.contains("findings"));
}

}  // namespace
}  // namespace millrace
