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
    EXPECT_THAT(page, HasSubstr("too large for this page"));
    EXPECT_THAT(page, HasSubstr("<path class=\"c0 d0"));
  }
}

// A short run of a classifier with its files in a folder.
RunStory classifier(const std::filesystem::path& folder, double rate) {
  std::filesystem::create_directories(folder / "pictures");
  std::ofstream(folder / "config.json") << Json{
      {"values", {{"optim", {{"learning_rate", rate}, {"name", "adamw"}}}, {"run", {{"dir", folder.string()}}}}}};
  for (const char* name : {"look.png", "look.step-00000001.png", "look.step-00000002.png", "only.png"})
    std::ofstream(folder / "pictures" / name) << "\x89PNG" << name;
  RunStory run;
  run.folder = folder;
  run.recipe = "toy";
  run.state = {.id = "done", .text = "done at step 3", .step = 3};
  std::vector<Json> lines = {{{"kind", "start"}, {"step", 0}}};
  for (int step = 1; step <= 3; ++step) {
    lines.push_back({{"kind", "step"}, {"step", step}, {"loss", 3.0 / step}, {"lr", rate}, {"train/recall/cat", 0.5}});
    lines.push_back({{"kind", "validation"},
                     {"step", step},
                     {"val_loss", 3.5 / step},
                     {"macro_f1", step == 2 ? 0.875 : 0.25},
                     {"accuracy", 0.1 * step},
                     {"recall/cat", 0.2},
                     {"recall/dog", 0.3},
                     {"left/mae", 1},
                     {"left/r2", 0.5}});
  }
  lines.push_back({{"kind", "metrics"},
                   {"step", 3},
                   {"judged", "macro_f1"},
                   {"order", {"val_loss", "accuracy", "macro_f1", "recall/cat", "recall/dog", "left/mae", "left/r2"}},
                   {"quiet", {"recall/cat", "recall/dog"}},
                   {"best_is", {{"val_loss", "lowest"}, {"accuracy", "highest"}, {"macro_f1", "highest"}}}});
  run.processes = {std::move(lines)};
  return run;
}

// The titles of the diagrams, in their order.
std::vector<std::string> titles_in(const std::string& page) {
  constexpr std::string_view kBefore = "\"><figcaption><b>";
  std::vector<std::string> titles;
  for (std::size_t at = page.find("<figure class=\"curve\""); at != std::string::npos;
       at = page.find("<figure class=\"curve\"", at + 1)) {
    const std::size_t begin = page.find(kBefore, at) + kBefore.size();
    titles.push_back(page.substr(begin, page.find('<', begin) - begin));
  }
  return titles;
}

std::filesystem::path own_folder(const std::string& name) {
  return testing::TempDir() + "report-" + name + "-" + std::to_string(::getpid());
}

TEST(ReportPage, BeginsWithTheMetricThatJudgesAndSaysBestOfTheBest) {
  const Folder folder(own_folder("judged"));
  const RunStory run = classifier(folder.path, 0.001);
  const std::string page = report_page({&run, 1});
  EXPECT_THAT(page, HasSubstr("<div class=\"figures\"><div><b>0.8750</b><span>macro_f1, best</span><i>at step 2</i></div>"));
  EXPECT_THAT(page, HasSubstr("<b>0.3000</b><span>accuracy, best</span><i>at step 3; 0.2000 at the best step</i>"));
  EXPECT_THAT(page, HasSubstr("<b>1.0000</b><span>left/mae, at the best step</span>"))
      << "nobody said which of its values is better";
  EXPECT_THAT(titles_in(page),
              testing::ElementsAre("macro_f1", "loss", "accuracy", "left/mae", "left/r2", "learning rate", "recall/…"))
      << "classes together, quiet ones last; mae and r2 are no group";
  EXPECT_THAT(page, HasSubstr("the dashed line marks the step of the best macro_f1"));
}

TEST(ReportPage, SaysWhatIsNotANumber) {
  const Folder folder(own_folder("nan"));
  RunStory run = classifier(folder.path, 0.001);
  run.processes.front().push_back({{"kind", "validation"}, {"step", 4}, {"val_loss", "inf"}, {"macro_f1", "nan"}});
  run.summary = {{"loss", {{"first", 3}, {"last", "nan"}}}};
  const std::string page = report_page({&run, 1});
  EXPECT_THAT(page, HasSubstr("<span>macro_f1, best</span><i>at step 2; the last value is not a number</i>"));
  EXPECT_THAT(page, HasSubstr("<b>nan</b><span>loss, last</span>"));
  EXPECT_THAT(page, HasSubstr("[3,0.25],[4,null]]")) << "a gap in the curve of macro_f1";
  run.processes = {{{{"kind", "start"}, {"step", 0}}, {{"kind", "validation"}, {"step", 4}, {"val_loss", "nan"}}}};
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("<b>not a number</b><span>val_loss, last</span>"));
}

TEST(ReportPage, HasThePicturesOfEachStep) {
  const Folder folder(own_folder("pictures"));
  const RunStory run = classifier(folder.path, 0.001);
  const std::string page = report_page({&run, 1});
  EXPECT_THAT(page, HasSubstr("<img alt=\"look step 1\" hidden data-step=\"1\""));
  EXPECT_THAT(page, HasSubstr("<img alt=\"look step 2\" data-step=\"2\"")) << "the newest is shown";
  EXPECT_THAT(page, HasSubstr("<img alt=\"only \" data-step=\"-1\""));
  EXPECT_THAT(page, Not(HasSubstr("alt=\"look \""))) << "it is the picture of step 2";
}

TEST(ReportPage, OfSeveralRunsSaysWhatDiffersAndHasOneLegend) {
  const Folder a(own_folder("a")), b(own_folder("b"));
  const std::vector<RunStory> runs = {classifier(a.path, 0.001), classifier(b.path, 0.01)};
  const std::string page = report_page(runs);
  EXPECT_THAT(page, HasSubstr("What differs in their configs"));
  EXPECT_THAT(page, HasSubstr("<tr><td>optim.learning_rate</td><td class=\"n\">0.001</td><td class=\"n\">0.01</td></tr>"));
  const std::string differences = page.substr(0, page.find("<h2>Curves</h2>"));
  EXPECT_THAT(differences, testing::AllOf(Not(HasSubstr("run.dir")), Not(HasSubstr("adamw"))));
  EXPECT_THAT(page, HasSubstr("<th class=\"n\">macro_f1, best</th><th class=\"n\">at step</th>"));
  const std::string name = a.path.filename().string();
  const auto button =
      page.find("data-run=\"0\"><svg class=\"key\" viewBox=\"0 0 16 4\"><path class=\"c0\" d=\"M0 2L16 2\"/></svg>" + name);
  ASSERT_NE(button, std::string::npos);
  const std::string curves = page.substr(button, page.find("<h2>Pictures</h2>") - button);
  EXPECT_EQ(curves.find(name, curves.find("<figure")), std::string::npos) << "no diagram repeats the names";
  EXPECT_THAT(page, HasSubstr("<figure class=\"picture\" data-run=\"1\"><figcaption><b>look</b>"));
  const std::vector<RunStory> same = {runs[0], runs[0]};
  EXPECT_THAT(report_page(same), HasSubstr("Their configs are the same."));
  const std::vector<RunStory> seven(7, runs[0]);
  EXPECT_THAT(report_page(seven), HasSubstr("data-run=\"6\"><svg class=\"key\" viewBox=\"0 0 16 4\"><path class=\"c6\""));
}

TEST(ReportPage, StepsThatAResumedRunRepeatedAreDrawnOnce) {
  RunStory run = long_story(0);
  const Folder folder(run.folder);
  run.processes = {{{{"kind", "start"}, {"step", 0}},
                    {{"kind", "step"}, {"step", 10}, {"loss", 5}},
                    {{"kind", "step"}, {"step", 20}, {"loss", 4}}},
                   {{{"kind", "start"}, {"step", 10}}, {{"kind", "step"}, {"step", 15}, {"loss", 3}}}};
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("&quot;points&quot;:[[10,5],[15,3]]"));
}

TEST(ReportPage, TheHostsTimeIsNoLoss) {
  RunStory run = long_story(0);
  const Folder folder(run.folder);
  run.processes = {{{{"kind", "start"}, {"step", 0}},
                    {{"kind", "step"}, {"step", 10}, {"loss", 5}, {"host_ms", 7}, {"step_ms_p50", 9}},
                    {{"kind", "step"}, {"step", 20}, {"loss", 4}, {"host_ms", 8}, {"step_ms_p50", 9}}}};
  const std::string page = report_page({&run, 1});
  const std::size_t host = page.find("<b>host&#39;s time of a step, ms</b>");
  ASSERT_NE(host, std::string::npos);
  EXPECT_GT(host, page.find("<b>time of a step, ms (median)</b>"));
  EXPECT_THAT(page, Not(HasSubstr("<b>host_ms</b>")));
}

TEST(ReportPage, LoadsItselfAgainOnlyWhereAsked) {
  RunStory run = long_story(0);
  const Folder folder(run.folder);
  run.processes.front().resize(20);
  EXPECT_THAT(report_page({&run, 1}), testing::AllOf(Not(HasSubstr("<body data-reload")), Not(HasSubstr("live, as of"))));
  EXPECT_THAT(report_page({&run, 1}, 5), testing::AllOf(HasSubstr("<body data-reload=\"5\">"), HasSubstr("live, as of")));
}

TEST(ReportPage, SaysWhatHadTheTime) {
  RunStory run = long_story(0);
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("Most of its time went into <b>backward</b>."));
  run.accounts.insert(run.accounts.begin(), {"others", 600});
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("Other programs took the largest part of its time."));
  run.accounts = {{"forward", 300}, {"startup", 290}, {"backward", 250}, {"data_wait", 200}};
  EXPECT_THAT(report_page({&run, 1}), HasSubstr("The largest part of its time went into <b>forward</b>."))
      << "40 % is not most of it";
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
  const std::string said =
      "These metrics are not the same measure throughout: bits (versions 1 and 2). Values of different versions can't be "
      "compared";
  EXPECT_THAT(report_page(std::vector<RunStory>{old, mended}), HasSubstr(said));
  EXPECT_THAT(report_page(std::vector<RunStory>{mended, mended}), Not(HasSubstr("not the same measure")));
  RunStory resumed = old;
  resumed.processes.push_back(mended.processes.front());
  EXPECT_THAT(report_page({&resumed, 1}), HasSubstr(said));
  resumed.processes.back().back()["metric_versions"] = 3;  // a damaged file may hold this
  EXPECT_THAT(report_page({&resumed, 1}), Not(HasSubstr("not the same measure")));
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

TEST(ReportPage, OfADamagedSummaryIsWithoutItsMemory) {
  for (const Json& memory : {Json{1}, Json("x"), Json{{"account", {1, 2}}}, Json{{"account", {{"cache", "x"}}}}}) {
    RunStory run;
    run.folder = own_folder("damaged");
    std::vector<Json> lines = {{{"kind", "start"}, {"step", 0}}};
    run.processes = {std::move(lines)};
    run.summary = {{"memory", memory}};
    EXPECT_THAT(report_page({&run, 1}), Not(HasSubstr("What memory held"))) << memory;
  }
}

}  // namespace
}  // namespace millrace::runs
