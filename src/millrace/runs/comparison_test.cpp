#include "millrace/runs/comparison.h"

#include <gmock/gmock.h>

#include <cmath>

#include "millrace/base/format.h"
#include "millrace/doctor/rules.h"

namespace millrace::runs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Json step(int at, double time, double loss, int batch = 8) {
  return {{"kind", "step"}, {"step", at}, {"time", time}, {"loss", loss}, {"samples", at * batch}, {"step_ms_p50", 9.5}};
}
Json validation(int at, double time, double loss) {
  return {{"kind", "validation"}, {"step", at}, {"time", time}, {"seconds", 0.1}, {"it_per_s", 7}, {"val_loss", loss}};
}
Json start(int from = 0) {
  return {{"kind", "start"},
          {"step", from},
          {"versions", {{"libtorch", "2.11.0"}}},
          {"plan",
           {{{"option", "device.threads"}, {"value", "2"}, {"reason", "the physical cores"}},
            {{"option", "precision.dtype"}, {"value", "bf16"}, {"reason", "7.2 ms"}}}}};
}

RunStory story(std::vector<std::vector<Json>> processes, std::vector<std::pair<std::string, double>> accounts = {}) {
  RunStory run;
  run.folder = "runs/toy/a";
  run.recipe = "toy";
  run.processes = std::move(processes);
  run.accounts = std::move(accounts);
  return run;
}

Json config(const Json& workers, const std::string& origin) {
  return {{"values", {{"data", {{"workers", workers}, {"dir", "d"}}}, {"run", {{"dir", origin + workers.dump()}}}}},
          {"origins", {{"data.workers", origin}, {"data.dir", "default"}}}};
}

Json few_readers() {
  return {{{"id", "few_readers"},
           {"what", "steps wait for data 40 % of the time"},
           {"remedy", "try --data.workers=4"},
           {"key", "data.workers"},
           {"value", "4"},
           {"gain", 0.4}}};
}

// A run of 100 steps, each with 6 ms of work and `wait_ms` of waiting.
RunFacts run_of(double wait_ms, const Json& workers, const Json& findings = Json::array()) {
  RunStory run = story({{start(), step(50, 1, 2.0), validation(50, 1.2, 1.5), step(100, 2, 1.0), validation(100, 2.2, 0.5)}},
                       {{"backward", 0.4}, {"forward", 0.2}, {"data_wait", wait_ms * 0.1}, {"startup", 3}});
  run.findings = findings;
  return facts_of(run, config(workers, "flag --data.workers"), "text 1");
}

TEST(RunFacts, OfALog) {
  const RunFacts facts = run_of(4, 1);
  EXPECT_EQ(facts.steps, 100);
  EXPECT_EQ(facts.samples_per_step, 8);
  EXPECT_EQ(facts.step_ms, 9.5);
  EXPECT_EQ(facts.config.at("data.workers"), (RunFacts::Setting{"1", "flag --data.workers"}));
  EXPECT_EQ(facts.plan.at("precision.dtype").value, "bf16");
  EXPECT_EQ(facts.machine.at("device.threads").origin, "the physical cores");
  EXPECT_EQ(facts.machine.at("version of libtorch").value, "2.11.0");
  EXPECT_EQ(facts.machine.size() + facts.plan.size(), 3U);
  ASSERT_THAT(facts.quality, SizeIs(2));
  EXPECT_EQ(facts.quality.at("val_loss").back().value, 0.5);
}

TEST(RunFacts, AProcessThatGoesOnMakesStepsAnew) {
  const RunFacts facts = facts_of(story({{start(), step(10, 1, 5), step(20, 2, 4)}, {start(10), step(20, 1.5, 3)}}), {}, "");
  const auto& losses = facts.quality.at("loss");
  ASSERT_THAT(losses, SizeIs(2));
  EXPECT_EQ(losses[1].value, 3);
  EXPECT_EQ(losses[1].seconds, 3.5);  // the seconds of the earlier process count too
  EXPECT_EQ(facts.steps, 10);         // like the accounts, covers only steps of the last process
}

TEST(RunFacts, ObjectivesHaveLossesOfTheirOwn) {
  Json line = {{"kind", "step"},   {"step", 1},      {"time", 1},        {"maker", 0.5},
               {"maker.lr", 1e-3}, {"judge", "nan"}, {"judge.lr", 1e-3}, {"train/psnr", 3}};
  const RunFacts facts = facts_of(story({{start(), line}}), {}, "");
  ASSERT_THAT(facts.quality, SizeIs(2));
  EXPECT_EQ(facts.quality.at("maker").front().value, 0.5);
  EXPECT_TRUE(std::isnan(facts.quality.at("judge").front().value));
}

TEST(RunFacts, SurvivesAnyJson) {
  const std::vector<Json> odd = {
      Json(),
      Json::array(),
      {{"kind", 5}},
      {{"kind", "start"}, {"plan", {{"a", 1}}}, {"versions", "x"}, {"step", "x"}},
      {{"kind", "step"}, {"step", 1e300}, {"time", -1e300}, {"loss", Json::object()}, {"samples", "x"}},
      {{"kind", "validation"}, {"step", -5}, {"\xff\xfe", 1e308}, {"x", {1, 2}}},
  };
  RunStory run = story({odd, odd, {}}, {{"\xff", 1e11}});
  run.findings = {{{"id", "few_readers"}, {"what", "x"}, {"gain", "x"}, {"key", 5}}};
  run.summary = {{"step_ms", 5}, {"memory", {{"account", {{"x", "y"}}}}}, {"choices", {1, {{"option", 5}}}}, {"versions", 3}};
  for (const Json& config : {Json(), Json(5), Json({{"values", 5}, {"origins", {1}}}), Json({{"values", {{"a", {{"b", 1}}}}}})}) {
    const RunFacts facts = facts_of(run, config, "\xff");
    const RunFacts other = run_of(1, 2);
    for (const auto& [a, b] : {std::pair{&facts, &other}, std::pair{&other, &facts}, std::pair{&facts, &facts}}) {
      const Json json = to_json(compare(*a, *b), *a, *b);
      EXPECT_FALSE(json.dump(-1, ' ', false, Json::error_handler_t::replace).empty());
    }
  }
}

TEST(Comparison, AMetricWhoseMeaningWasMendedIsNotSetBesideItsOldSelfWithoutAWord) {
  const Json old = {{"kind", "validation"}, {"step", 10}, {"time", 2}, {"bits", 0.33}, {"val_loss", 1.0}};
  Json mended = old;
  mended["metric_versions"] = {{"bits", 2}};
  const RunFacts a = facts_of(story({{start(), old}}), {}, ""), b = facts_of(story({{start(), mended}}), {}, "");
  EXPECT_THAT(joined(compare(a, b).notes, "\n"), HasSubstr("these metrics are not the same measure in both runs: bits (A: "
                                                           "version 1, B: version 2); their values can't be compared"));
  EXPECT_THAT(joined(compare(b, b).notes, "\n"), testing::Not(HasSubstr("not the same measure")));
  Json later = mended, again = start();
  later["step"] = 20;
  again["step"] = 10;
  const RunFacts resumed = facts_of(story({{start(), old}, {again, later}}), {}, "");  // the corrected program resumed the run
  EXPECT_THAT(joined(compare(resumed, b).notes, "\n"), HasSubstr("(A: version 1, B: version 2)"))
      << "at step 10, which both have";
}

TEST(Comparison, OfARunWithItself) {
  const RunFacts run = run_of(4, 1);
  const Comparison same = compare(run, run);
  EXPECT_THAT(same.config, IsEmpty());
  EXPECT_THAT(same.plan, IsEmpty());
  EXPECT_THAT(same.machine, IsEmpty());
  EXPECT_THAT(same.notes, IsEmpty());
  EXPECT_FALSE(same.data);
  EXPECT_THAT(same.explanation.text, HasSubstr("the same time within the noise, 10 %: 10 ms a step in A"));
  EXPECT_EQ(same.explanation.slower, "");
}

// A run of `steps` steps that take `ms` each. The times in its log lines differ from `ms` by up to 2 * `spread` of it.
RunFacts steady_run(double steps, double ms, double spread) {
  RunFacts run;
  run.recipe = "toy";
  run.steps = steps;
  run.samples_per_step = 8;
  run.accounts = {{"backward", steps * ms * 1e-3}, {"startup", 3}};
  for (int line = 0; line < 20; ++line) run.line_ms.push_back(ms * (1 + spread * (line % 5 - 2)));
  run.findings = Json::array();
  return run;
}

TEST(Comparison, NoRunIsCalledSlowerWithinTheNoise) {
  const auto told = [](const RunFacts& a, const RunFacts& b) { return compare(a, b).explanation; };
  // A minute of steps that take equally long: 3 % is the limit.
  EXPECT_EQ(told(steady_run(10'000, 17.1, 0), steady_run(10'000, 17.8, 0)).slower, "b");
  EXPECT_THAT(told(steady_run(10'000, 17.1, 0), steady_run(10'000, 17.5, 0)).text,
              HasSubstr("the same time within 3 %: 17.1 ms"));
  // Seventeen seconds of steps: 10 % is the limit.
  const Comparison::Explanation brief = told(steady_run(1'000, 17.1, 0), steady_run(1'000, 17.8, 0));
  EXPECT_EQ(brief.slower, "");
  EXPECT_THAT(brief.text, HasSubstr("both take the same time within the noise, 10 %: 17.1 ms a step in A, 17.8 ms a step in B"));
  EXPECT_EQ(told(steady_run(1'000, 17.1, 0), steady_run(1'000, 21, 0)).slower, "b");
  // A long run whose steps vary: their spread is the limit.
  const Comparison::Explanation noisy = told(steady_run(10'000, 17.1, 0.1), steady_run(10'000, 19, 0));
  EXPECT_EQ(noisy.slower, "");
  EXPECT_THAT(noisy.text, HasSubstr("within the noise, 20 %"));
  EXPECT_EQ(told(steady_run(10'000, 17.1, 0.1), steady_run(10'000, 25, 0)).slower, "b");
}

TEST(Comparison, TheFindingThatExplainsTheDifference) {
  const RunFacts slow = run_of(4, 1, few_readers());
  const RunFacts fast = run_of(0.5, 4);
  const Comparison result = compare(slow, fast);
  ASSERT_THAT(result.config, SizeIs(1));
  EXPECT_EQ(result.config[0].key, "data.workers");
  EXPECT_EQ(result.config[0].a->value, "1");
  EXPECT_EQ(result.config[0].b->value, "4");
  EXPECT_NEAR(*result.loop.a, 0.010, 1e-12);
  EXPECT_NEAR(*result.loop.b, 0.0065, 1e-12);
  EXPECT_THAT(result.once, SizeIs(1));
  EXPECT_EQ(result.explanation.slower, "a");
  EXPECT_EQ(result.explanation.account, "data_wait");
  EXPECT_EQ(result.explanation.rule, "few_readers");
  EXPECT_THAT(
      result.explanation.text,
      AllOf(HasSubstr("A is slower: 10 ms a step, B 6.5 ms a step"), HasSubstr("data_wait: 3.5 ms a step"),
            HasSubstr("data.workers is 1 in A and 4 in B"), HasSubstr("predicted to take 6 ms a step, while B takes 6.5")));
  const Comparison turned = compare(fast, slow);
  EXPECT_EQ(turned.explanation.slower, "b");
  EXPECT_EQ(turned.explanation.rule, "few_readers");
}

TEST(Comparison, AFindingAboutSomethingElseExplainsNothing) {
  Json other = few_readers();
  other[0]["id"] = "log_often";
  const Comparison result = compare(run_of(4, 1, other), run_of(0.5, 4));
  EXPECT_EQ(result.explanation.rule, "");
  EXPECT_THAT(result.explanation.text, HasSubstr("No finding of A explains it; what differs: data.workers"));
  // A finding of the faster run must not explain the slowness of the other run.
  EXPECT_EQ(compare(run_of(4, 1), run_of(0.5, 4, few_readers())).explanation.rule, "");
  EXPECT_THAT(compare(run_of(4, 1, Json()), run_of(0.5, 4)).explanation.text, HasSubstr("No findings were recorded in A"));
}

TEST(Comparison, OtherRecipesHaveSharesOnly) {
  const RunFacts a = run_of(4, 1, few_readers());
  RunFacts b = run_of(0.5, 1);
  b.recipe = "other";
  const Comparison result = compare(a, b);
  EXPECT_EQ(result.unit, Unit::share);
  EXPECT_THAT(result.notes, ElementsAre(AllOf(HasSubstr("the recipes differ (toy, other)"), HasSubstr("Still comparable"))));
  EXPECT_THAT(result.at_step, IsEmpty());
  EXPECT_EQ(result.explanation.rule, "");
  double sum = 0;
  for (const Pair& pair : result.accounts) sum += *pair.a;
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Comparison, OtherBatchesAreComparedBySample) {
  const RunFacts a = run_of(4, 1);
  RunFacts b = a;
  b.samples_per_step = 16;
  const Comparison result = compare(a, b);
  EXPECT_EQ(result.unit, Unit::seconds_a_sample);
  EXPECT_NEAR(*result.loop.a / *result.loop.b, 2, 1e-12);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("a step of A holds 8 samples, a step of B 16")));
}

TEST(Comparison, OtherDataIsSaid) {
  const RunFacts a = run_of(4, 1);
  RunFacts b = a;
  b.data = "text 2";
  EXPECT_THAT(compare(a, b).notes, ElementsAre(HasSubstr("the data differs")));
  b.data = "";
  EXPECT_THAT(compare(a, b).notes, IsEmpty());
  EXPECT_FALSE(compare(a, b).knows_data);
}

TEST(Comparison, QualityAtAnEqualStepAndAfterEqualTime) {
  const RunFacts a = run_of(4, 1);
  const RunFacts b =
      facts_of(story({{start(), step(50, 4, 2.5), validation(50, 4.1, 1.8), step(100, 8, 1.1), step(200, 16, 0.7)}}), {}, "");
  const Comparison result = compare(a, b);
  ASSERT_THAT(result.at_step, SizeIs(2));
  EXPECT_EQ(result.at_step[0].name, "loss");
  EXPECT_EQ(result.at_step[0].a->value, 1.0);
  EXPECT_EQ(result.at_step[0].b->value, 1.1);
  EXPECT_EQ(result.at_step[1].a->step, 50);  // the last validation that both runs have
  EXPECT_EQ(result.at_step[1].b->value, 1.8);
  EXPECT_NEAR(result.seconds, 2.2, 1e-12);
  EXPECT_EQ(result.at_time[0].a->value, 1.0);
  EXPECT_FALSE(result.at_time[0].b);  // the first log line of B comes later
}

TEST(Comparison, WithoutAccountsItSaysSo) {
  const RunFacts a = run_of(4, 1);
  const RunFacts b = facts_of(story({{start(), step(50, 1, 2)}}), {}, "text 1");
  const Comparison result = compare(a, b);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("B has no record of where its time went")));
  EXPECT_FALSE(result.loop.b);
  EXPECT_THAT(result.explanation.text, HasSubstr("it is unknown why one run is slower"));
}

}  // namespace
}  // namespace millrace::runs
