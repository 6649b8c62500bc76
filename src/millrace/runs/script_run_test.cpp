// Tests that all code that reads runs can also read the folder of a training script, in the form of docs/files.md.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "millrace/runs/comparison.h"
#include "millrace/runs/report_page.h"
#include "millrace/runs/run_row.h"

namespace millrace::runs {
namespace {

using testing::HasSubstr;

class ScriptRun : public testing::Test {
 protected:
  ~ScriptRun() override { std::filesystem::remove_all(root_); }

  // A run of 40 steps. Each step waits `wait` seconds for data and computes for 10 ms.
  std::filesystem::path made(const std::string& name, int workers, double wait, const Json& findings) const {
    const std::filesystem::path run = root_ / name;
    std::filesystem::create_directories(run);
    const auto write = [&run](const char* file, const Json& json) { std::ofstream(run / file) << json.dump(2) << "\n"; };
    write("run.json", {{"format", 1},
                       {"kind", "script"},
                       {"recipe", "train.py"},
                       {"files", {"run.json", "config.json", "log.jsonl", "summary.json"}},
                       {"old_run", ""},
                       {"replacement", "none"}});
    write("config.json", {{"values", {{"loader", {{"num_workers", workers}, {"batch_size", 16}}}}},
                          {"origins", {{"loader.num_workers", "train.py:31"}}}});
    const Json accounts = {{"data_wait", 40 * wait}, {"forward", 0.2}, {"backward", 0.2}, {"startup", 1}};
    std::ofstream log(run / "log.jsonl");
    log << Json{{"kind", "start"},
                {"time", 0},
                {"script", "train.py"},
                {"recipe", "train.py"},
                {"step", 0},
                {"command", {"python", "train.py"}},
                {"versions", {{"torch", "2.11.0"}}}}
               .dump()
        << "\n";
    log << Json{{"kind", "step"},      {"time", 2},      {"step", 40},
                {"loss", 0.5},         {"samples", 640}, {"step_ms_p50", 1e3 * wait + 10},
                {"accounts", accounts}}
               .dump()
        << "\n";
    log << Json{{"kind", "end"}, {"time", 2}, {"step", 40}, {"exit_reason", "end"}}.dump() << "\n";
    write("summary.json", {{"kind", "script"},
                           {"recipe", "train.py"},
                           {"exit_reason", "end"},
                           {"steps", 40},
                           {"loss", {{"first", 2.5}, {"last", 0.5}}},
                           {"accounts", accounts},
                           {"bound_by", "data_wait"},
                           {"findings", findings},
                           {"step_ms", {{"p50", 1e3 * wait + 10}}}});
    return run;
  }

  std::filesystem::path root_ = testing::TempDir() + "script-run-" + std::to_string(::getpid());
  Json few_ = {{{"id", "few_readers"},
                {"what", "steps wait for data 80 % of the time"},
                {"remedy", "try DataLoader(..., num_workers=4) in train.py:31"},
                {"change", "DataLoader(..., num_workers=4)"},
                {"where", "train.py:31"},
                {"gain", 0.75}}};
};

TEST_F(ScriptRun, IsARowAStoryAndAPage) {
  const auto run = made("a", 1, 0.05, few_);
  const RunRow row = row_of(runs::Run(run));
  EXPECT_EQ(row.recipe, "train.py");
  EXPECT_EQ(row.state, "done");
  EXPECT_EQ(row.step, 40);
  EXPECT_EQ(row.bound_by, "data_wait");
  EXPECT_EQ(row.findings, 1);
  EXPECT_EQ(find_runs(root_).size(), 1U);
  const RunStory story = read_story(run);
  EXPECT_TRUE(story.is_script);
  EXPECT_EQ(story.state.text, "finished at step 40");
  const std::string page = report_page({&story, 1});
  EXPECT_THAT(page, HasSubstr("<h1>your script train.py</h1>"));
  EXPECT_THAT(page, HasSubstr("<code>DataLoader(..., num_workers=4)</code> in train.py:31"));
  EXPECT_THAT(page, HasSubstr("python train.py"));
}

TEST_F(ScriptRun, TwoOfThemAreCompared) {
  const RunFacts slow = read_facts(made("a", 1, 0.05, few_)), fast = read_facts(made("b", 4, 0.005, Json::array()));
  const Comparison comparison = compare(slow, fast);
  EXPECT_THAT(comparison.explanation.text, HasSubstr("A is slower: 60 ms a step, B 15 ms a step"));
  EXPECT_THAT(comparison.explanation.text, HasSubstr("few_readers of A explains data_wait"));
  ASSERT_EQ(comparison.config.size(), 1U);
  EXPECT_EQ(comparison.config.front().key, "loader.num_workers");
}

TEST_F(ScriptRun, WhoeverWasKilledAfterAResumeIsNotDone) {
  const auto run = made("a", 1, 0.05, few_);
  std::ofstream log(run / "log.jsonl", std::ios::app);
  log << Json{{"kind", "start"}, {"time", 0}, {"script", "train.py"}, {"recipe", "train.py"}, {"step", 40}}.dump() << "\n";
  log << Json{{"kind", "step"}, {"time", 1}, {"step", 60}, {"loss", 0.25}}.dump() << "\n" << std::flush;
  const RunRow row = row_of(runs::Run(run));
  EXPECT_EQ(row.step, 60);
  EXPECT_EQ(row.loss, 0.25);
  EXPECT_EQ(row.state, "died");
}

TEST_F(ScriptRun, AStepOfAHundredThousandBytesIsInTheTable) {
  const auto run = made("a", 1, 0.05, few_);
  std::ofstream log(run / "log.jsonl", std::ios::app);
  log << Json{{"kind", "start"}, {"time", 0}, {"script", "train.py"}, {"recipe", "train.py"}, {"step", 40}}.dump() << "\n";
  Json step = {{"kind", "step"}, {"time", 1}, {"step", 60}, {"loss", 0.25}, {"step_ms_p50", 7.0}};
  for (int i = 0; i < 4000; ++i) step["train/metric_" + std::to_string(i)] = 0.125;
  const std::string line = step.dump();
  ASSERT_GT(line.size(), 65'536U);
  log << line << "\n" << std::flush;
  const RunRow row = row_of(runs::Run(run));
  EXPECT_EQ(row.step, 60);
  EXPECT_EQ(row.loss, 0.25);
  EXPECT_EQ(row.step_ms, 7.0);
  EXPECT_EQ(row.state, "died");
}

TEST_F(ScriptRun, AnOlderSummaryIsNotThatOfTheLastProcess) {
  const auto run = made("a", 1, 0.05, few_);
  EXPECT_FALSE(read_story(run).summary.is_null());
  std::ofstream log(run / "log.jsonl", std::ios::app);
  log << Json{{"kind", "start"}, {"time", 0}, {"script", "train.py"}, {"recipe", "train.py"}, {"step", 40}}.dump() << "\n";
  log << Json{{"kind", "step"}, {"time", 1}, {"step", 60}, {"loss", 0.25}, {"accounts", {{"backward", 1}}}}.dump() << "\n";
  log << Json{{"kind", "end"}, {"time", 1}, {"step", 60}, {"exit_reason", "end"}}.dump() << "\n" << std::flush;
  const RunStory story = read_story(run);
  EXPECT_TRUE(story.summary.is_null()) << "the disk was full, so that the summary of step 40 is still there";
  ASSERT_EQ(story.accounts.size(), 1U);
  EXPECT_EQ(story.accounts.front().first, "backward");
  EXPECT_TRUE(story.findings.empty());
}

TEST_F(ScriptRun, WithoutAnEndItDied) {
  const auto run = made("a", 1, 0.05, few_);
  std::filesystem::remove(run / "summary.json");
  EXPECT_EQ(row_of(runs::Run(run)).state, "died");
  std::ofstream(run / "log.jsonl") << Json{{"kind", "start"}, {"script", "train.py"}, {"step", 0}}.dump() << "\n";
  EXPECT_TRUE(read_story(run).state.is_death);
}

}  // namespace
}  // namespace millrace::runs
