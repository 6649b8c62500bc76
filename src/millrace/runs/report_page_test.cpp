#include "millrace/runs/report_page.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

namespace millrace::runs {
namespace {

using testing::HasSubstr;
using testing::Not;

// A run of 100,000 steps with a log line every ten steps, two objectives, and more metrics than any recipe has.
RunStory long_story(int metrics) {
  RunStory run;
  run.folder = testing::TempDir() + "report-page-" + std::to_string(::getpid());
  run.recipe = "toy";
  run.state = {.id = "done", .text = "done at step 100,000", .step = 100'000};
  run.accounts = {{"backward", 500}, {"forward", 300}, {"startup", 4}};
  run.blocks = {{"conv.0", 100, 200}, {"conv.1", 150, 250}, {"(outside)", 50, 50}};
  std::vector<Json> lines;
  lines.push_back({{"kind", "start"}, {"step", 0}});
  for (int step = 10; step <= 100'000; step += 10) {
    Json line = {{"kind", "step"}, {"step", step}, {"step_ms_p50", 8 + std::sin(step)}};
    for (const char* objective : {"generator", "discriminator"}) {
      for (const char* name : {"lr", "grad_norm", "loss_scale"})
        line[std::string(objective) + "." + name] = 1.2345678 + std::sin(step * 0.37);
      line[objective] = 1 / (1 + 1e-4 * step) + 0.01 * std::cos(step);
    }
    for (int i = 0; i < metrics; ++i) line["train/metric_" + std::to_string(i)] = std::sin(0.1 * step + i) + 1e-3 * i;
    lines.push_back(std::move(line));
  }
  run.processes = {std::move(lines)};
  return run;
}

struct Folder {
  explicit Folder(const std::filesystem::path& at) : path(at) { std::filesystem::create_directories(path / "pictures"); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

TEST(ReportPage, OfALongRunIsAtMostTwoMegabytes) {
  for (const int metrics : {10, 150}) {
    const RunStory run = long_story(metrics);
    const Folder folder(run.folder);
    for (const char* name : {"a", "b", "c", "d", "e"})
      std::ofstream(folder.path / "pictures" / (std::string(name) + ".png")) << "\x89PNG" << std::string(390'000, 'x');
    const std::string page = report_page({&run, 1});
    EXPECT_LT(page.size(), 2'000'000U);
    EXPECT_GT(page.size(), 1'400'000U) << "what is left of it holds pictures";
    EXPECT_THAT(page, HasSubstr("Too large for this page"));
    EXPECT_THAT(page, HasSubstr("<path class=\"c0 d0"));
  }
}

TEST(ReportPage, SaysWhatHadTheTime) {
  RunStory run = long_story(0);
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("Most of its time went into <b>backward</b>."));
  run.accounts.insert(run.accounts.begin(), {"others", 600});
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("Other programs had more of its time than anything else."));
}

TEST(ReportPage, NeedsNoNetwork) {
  RunStory run = long_story(0);
  const Folder folder(run.folder);
  run.processes.front().resize(200);
  const std::string page = report_page({&run, 1});
  for (const char* outside : {"src=\"http", "href=", "@import", "url("}) EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST(ReportPage, FiguresOfTwoVersionsOfAMetricAreNotSetBesideEachOtherWithoutAWord) {
  RunStory old = long_story(0);
  old.processes = {{{{"kind", "start"}, {"step", 0}}, {{"kind", "validation"}, {"step", 10}, {"bits", 0.33}, {"val_loss", 1.0}}}};
  RunStory mended = old;
  mended.processes.front().back()["metric_versions"] = {{"bits", 2}};
  const std::string said = "Not the same measure all through: bits (versions 1 and 2). Figures of two versions do not compare";
  EXPECT_THAT(report_page(std::vector<RunStory>{old, mended}), HasSubstr(said));
  EXPECT_THAT(report_page(std::vector<RunStory>{mended, mended}), Not(HasSubstr("Not the same measure")));
  RunStory resumed = old;
  resumed.processes.push_back(mended.processes.front());
  EXPECT_THAT(report_page({&resumed, 1}), HasSubstr(said));
  resumed.processes.back().back()["metric_versions"] = 3;  // a damaged file may hold this
  EXPECT_THAT(report_page({&resumed, 1}), Not(HasSubstr("Not the same measure")));
}

TEST(ReportPage, SaysWhatBlocksOfTheModelTake) {
  RunStory run = long_story(0);
  const Folder folder(run.folder);
  run.processes.front().resize(20);
  run.blocks.push_back({"<b>", 1, 1});
  const std::string page = report_page({&run, 1});
  const auto first = page.find("<td>conv.1</td>"), second = page.find("<td>conv.0</td>");
  EXPECT_LT(first, second) << "the one that takes most is the first";
  EXPECT_NE(second, std::string::npos);
  EXPECT_THAT(page, HasSubstr("<td>&lt;b&gt;</td>"));
  run.blocks.clear();
  EXPECT_THAT(report_page({&run, 1}), Not(HasSubstr("by block")));
}

// Reads the files of a run as `millrace report` does.
TEST(ReportPage, SharesOutTheTimeOfEachRank) {
  const Folder folder(testing::TempDir() + "report-ranks-" + std::to_string(::getpid()));
  std::ofstream(folder.path / "log.jsonl") << R"({"kind":"start","step":0})" << '\n'
                                           << R"({"kind":"end","step":9,"exit_reason":"max_steps"})" << '\n';
  const auto page_of = [&](const Json& ranks) {
    const Json summary = {{"recipe", "toy"}, {"ranks", ranks}};
    std::ofstream(folder.path / "summary.json") << summary.dump();
    const RunStory run = read_story(folder.path);
    return report_page({&run, 1});
  };
  const Json first = {{"rank", 0}, {"accounts", {{"backward", 600}, {"reduction", 302}, {"<b>", 95}, {"log", 3}}}};
  const Json second = {{"rank", 1}, {"accounts", {{"backward", 900}, {"reduction", 100}}}};
  Json ranks = Json::array();
  ranks.push_back(first);
  EXPECT_THAT(page_of(ranks), Not(HasSubstr("<h2>Ranks</h2>"))) << "a single process";
  ranks.push_back(second);
  const std::string page = page_of(ranks);
  EXPECT_THAT(page, HasSubstr("<h2>Ranks</h2>"));
  EXPECT_THAT(page, HasSubstr("<th class=\"n\">backward</th><th class=\"n\">reduction</th><th class=\"n\">&lt;b&gt;</th></tr>"))
      << "the account that takes most of a rank is the first; what takes next to nothing has no column";
  EXPECT_THAT(page, HasSubstr("<tr><td>0</td><td class=\"n\">16 min 40 s</td><td class=\"n\">60.0 %</td>"
                              "<td class=\"n\">30.2 %</td><td class=\"n\">9.5 %</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>1</td><td class=\"n\">16 min 40 s</td><td class=\"n\">90.0 %</td>"
                              "<td class=\"n\">10.0 %</td><td class=\"n\"></td></tr>"));
  while (ranks.size() < 300) ranks.push_back(second);
  const std::string of_many = page_of(ranks);
  EXPECT_THAT(of_many, HasSubstr("<summary>240 more ranks</summary>"));
  EXPECT_THAT(of_many, HasSubstr("44 more are in summary.json"));
}

}  // namespace
}  // namespace millrace::runs
