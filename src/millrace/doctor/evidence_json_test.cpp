#include "millrace/doctor/evidence_json.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/doctor/detail/sound_run.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;

// Evidence with all optional parts, and with an element in each list.
Evidence full() {
  Evidence e = sound_with(Phase::data_wait, 3.25);
  e.times.step_ms_p50 = 94.5;
  e.work_cpu_seconds = 12.5;
  e.core_wait_seconds = 0.25;
  e.others = 0.125;
  e.gpu = Evidence::Gpu{.utilisation = 0.5, .mhz = 1200, .most_mhz = 1980, .held_back = {"heat"}};
  e.launches = Evidence::Launches{.host_ms = 3, .device_ms = 4, .behind_ms = 5};
  e.clock = Evidence::CpuClock{.before_mhz = 3000, .now_mhz = 2000, .lost = 0.25};
  e.input.slow = {{.file = "a.h5", .excess_seconds = 2, .times = 9, .quick = 0.5, .sample = "a.h5[3]", .sample_times = 20}};
  e.input.cacheable_bytes = std::numeric_limits<std::uint64_t>::max();
  e.copied_floats = 0.75;
  e.numbers.objectives.front().lines.push_back({.step = 90, .loss = std::numeric_limits<double>::infinity(), .gradient_norm = 1});
  e.numbers.blind = Evidence::Blind{.loss = 2.5, .what = "an entropy"};
  e.numbers.judged = Evidence::Judged{.unit = "tokens", .by = 64, .there_are = 128, .batches = 2, .most_batches = 2};
  e.numbers.clamps = {{.name = "log variance", .low = -30, .high = 20, .values = 100, .at_border = 60}};
  e.experiments.format = Evidence::Experiments::Format{.from = "fp32", .to = "bf16", .ratio = 1.5};
  e.experiments.threads = Evidence::Experiments::Threads{.asked = 16, .cores = 4, .ratio = 1.25};
  e.experiments.batch = Evidence::Experiments::Batch{.rows = 2, .fixed_share = 0.5, .batch_size = 2};
  e.experiments.layout = Evidence::Experiments::Layouts{.from = "contiguous", .to = "channels_last", .ratio = 1.5};
  e.experiments.recompute = Evidence::Experiments::Recompute{.saved_bytes = 1000, .seconds = 0.5};
  e.census =
      Evidence::Census{.operations = 10, .host_reads = 1, .seconds = 1, .rebuilt_seconds = 0.5, .rebuilt_by = "aten::tril"};
  e.targets = {{.key = "targets.data_wait", .what = "waiting", .unit = "", .asked = 0.1, .measured = 0.2, .at_most = true}};
  e.ranks = {{.reduction = 1, .data_wait = 2}, {.reduction = 3, .data_wait = 4}};
  e.earlier = {.step_ms = {90, 91}, .newest = "runs/a"};
  e.run = "runs/b";
  e.script = Script{.path = "train.py", .command = "python train.py", .dialect = Dialect::accelerate, .threads = 2};
  e.script->loader = Script::Loader{.workers = 2, .prefetch = 2, .batch_size = 16, .where = "train.py:31", .epochs = 3};
  e.script->faults = Script::Faults{.minor_per_step = 28000, .system_cpu_share = 0.08, .below_headrace_run = true};
  e.script->item_calls = Script::ItemCalls{.count = 100, .seconds = 1.5, .where = "train.py:40", .line = "x = loss.item()"};
  e.script->python = Script::PythonLooks{.gil_share = 0.5, .samples = 200, .where = "train.py:52", .where_share = 0.25};
  e.script->kept_graphs = Script::KeptGraphs{.growth_bytes_per_step = 4e4, .list = "losses", .where = "train.py:44", .line = ""};
  e.script->validation_input =
      Script::ValidationInput{.workers = 1, .wait_seconds = 2, .read_seconds = 2, .read_cpu_seconds = 1, .where = "a.py:4"};
  e.script->saves = e.script->logs = e.script->validations = Script::Deed{.count = 3, .seconds = 1, .where = "a.py:1"};
  return e;
}

std::string refusal(const std::string& text) {
  try {
    (void)evidence_from(Json::parse(text));
  } catch (const ConfigError& error) {
    const Message message = error.message();
    return message.what + " | " + message.where + " | " + message.next;
  }
  return "";
}

TEST(EvidenceJson, IsReadAsItWasWritten) {
  const Evidence e = full();
  const Json json = to_json(e);
  EXPECT_EQ(json["numbers"]["objectives"][0]["lines"].back()["loss"], "inf");
  EXPECT_EQ(json["times"]["seconds"]["data_wait"], 3.25);
  EXPECT_EQ(json["script"]["dialect"], "accelerate");
  const Evidence read = evidence_from(Json::parse(json.dump()));
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(to_json(findings_of(read)), to_json(findings_of(e)));
  EXPECT_FALSE(findings_of(e).empty());
  EXPECT_EQ(to_json(evidence_from(to_json(Evidence()))), to_json(Evidence()));
}

TEST(EvidenceJson, WhatIsLeftOutHasItsDefault) {
  const Evidence e = evidence_from(Json::parse(R"({"times": {"steps": 4}, "script": null, "numbers": {"objectives": [
    {"name": "loss", "lines": [{"step": 1, "loss": 2.5}]}]}})"));
  EXPECT_EQ(e.times.steps, 4);
  EXPECT_FALSE(e.script);
  EXPECT_EQ(e.cores, 1);
  EXPECT_TRUE(std::isnan(e.numbers.objectives.front().lines.front().gradient_norm));
}

TEST(EvidenceJson, WhatIsUnknownOrWrongIsNamed) {
  EXPECT_THAT(refusal(R"({"script": {"loader": {"wokers": 2}}})"),
              HasSubstr("there is no wokers in evidence.script.loader | evidence.script.loader.wokers | did you mean workers?"));
  EXPECT_THAT(refusal(R"({"times": {"seconds": {"fetch": 1}}})"), HasSubstr("evidence.times.seconds.fetch | it has startup, "));
  EXPECT_THAT(refusal(R"({"times": {"steps": 1.5}})"), HasSubstr("1.5 is not a whole number | evidence.times.steps"));
  EXPECT_THAT(refusal(R"({"memory": {"used": -1}})"), HasSubstr("-1 is not a whole number from 0 on | evidence.memory.used"));
  EXPECT_THAT(refusal(R"({"input": {"readers": 99999999999}})"), HasSubstr("evidence.input.readers"));
  EXPECT_THAT(refusal(R"({"others": "much"})"), HasSubstr("\"much\" is not a number"));
  EXPECT_THAT(refusal(R"({"on_gpu": 1})"), HasSubstr("1 is not true or false | evidence.on_gpu"));
  EXPECT_THAT(refusal(R"({"step_ms": [1, null]})"), HasSubstr("evidence.step_ms[1]"));
  EXPECT_THAT(refusal(R"({"step_ms": 5})"), HasSubstr("5 is not a list"));
  EXPECT_THAT(refusal(R"({"script": {"dialect": "keras"}})"), HasSubstr("a dialect: loop, lightning, trainer, accelerate"));
  EXPECT_THAT(refusal(R"({"cores": 0})"), HasSubstr("there are no cores"));
  EXPECT_THAT(refusal("[]"), HasSubstr("[] is not an object | evidence"));
}

}  // namespace
}  // namespace millrace::doctor
