#include "millrace/train/run/command_config.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "millrace/config/arguments.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/run/run.h"

namespace millrace {
namespace {

using testing::HasSubstr;

struct ToyConfig {
  std::int64_t width = 4;
  std::int64_t heads = 1;
  std::string title;
  std::string model;
  static consteval auto fields() {
    return std::tuple{config::field<&ToyConfig::width>("Width.").min(1), config::field<&ToyConfig::heads>("Heads.").min(1),
                      config::field<&ToyConfig::model>("Another file.").path(),
                      config::field<&ToyConfig::title>("Title.").required()};
  }
};
struct ToySections {
  ToyConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&ToySections::recipe>("The toy.")}; }
};

class CommandConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("command_config_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    entry_.name = "toy";
    entry_.sections = config::schema_of<ToySections>();
    entry_.defaults = {{"recipe.width", 5}};
    entry_.presets = {{"smoke", {{"recipe", {{"width", 6}}}, {"recipe.title", "preset"}}}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  CommandConfig resolve(const std::vector<std::string>& words) {
    config::Arguments arguments(words);
    return resolve_command_config(entry_, arguments);
  }
  std::vector<Problem> problems(const std::vector<std::string>& words) {
    try {
      static_cast<void>(resolve(words));
    } catch (const ConfigError& error) {
      return error.problems();
    }
    return {};
  }

  std::filesystem::path folder_;
  Entry entry_;
};

TEST_F(CommandConfigTest, PrecedenceIsFlagEnvironmentFilePresetDefaults) {
  const std::string json = file("a.json", R"({"recipe": {"width": 7, "title": "file"}})");
  const std::string later = file("b.toml", "[recipe]\nwidth = 8\n");
  const auto width = [&](const std::vector<std::string>& words) { return resolve(words).resolved.values["recipe"]["width"]; };
  EXPECT_EQ(width({"--recipe.title=x"}), 5);
  EXPECT_EQ(width({"--preset", "smoke"}), 6);
  EXPECT_EQ(width({"--preset", "smoke", "--config", json}), 7);
  EXPECT_EQ(width({json, "--preset=smoke", later}), 8);
  EXPECT_EQ(width({"--config", json, later}), 8);
  ::setenv("MILLRACE_RECIPE__WIDTH", "9", 1);
  EXPECT_EQ(width({json, later}), 9);
  EXPECT_EQ(width({json, "--recipe.width=10"}), 10);
  ::unsetenv("MILLRACE_RECIPE__WIDTH");
}

TEST_F(CommandConfigTest, KnowsWhereValuesCameFrom) {
  const CommandConfig config =
      resolve({"--preset=smoke", "--data", "d", "--run=r", "--off=keep-memory,autocast", "--off", "device_skip"});
  EXPECT_EQ(config.preset, "smoke");
  EXPECT_EQ(config.resolved.values["data"]["dir"], "d");
  EXPECT_EQ(config.resolved.values["run"]["dir"], "r");
  EXPECT_EQ(config.resolved.values["train"]["off"], (Json{"keep_memory", "autocast", "device_skip"}));
  EXPECT_EQ(config.resolved.origins.at("data.dir"), "flag --data");
  EXPECT_EQ(config.resolved.origins.at("recipe.title"), "preset smoke");
}

TEST_F(CommandConfigTest, ReportsAllMistakesAtOnce) {
  const std::string json = file("a.json", R"({"recipe": {"widht": 7}})");
  const std::vector<Problem> found =
      problems({json, "--preset=smok", "--off=autocats", "stray", "--recipe.width=0", "--run", "--nonsense=1"});
  std::string all;
  for (const Problem& problem : found) all += problem.what + " | " + problem.where + " | " + problem.next + "\n";
  EXPECT_EQ(found.size(), 8U) << all;  // one problem for each mistake, and one for the missing title
  EXPECT_THAT(all, HasSubstr("recipe toy has no preset \"smok\" | flag --preset=smok | did you mean \"smoke\"? presets: smoke"));
  EXPECT_THAT(all, HasSubstr("\"autocats\" | flag --off | did you mean autocast?"));
  EXPECT_THAT(all, HasSubstr("unexpected word \"stray\""));
  EXPECT_THAT(all, HasSubstr("--run needs a value"));
  EXPECT_THAT(all, HasSubstr("widht"));
  EXPECT_THAT(all, HasSubstr("nonsense"));
  EXPECT_THAT(all, HasSubstr("recipe.title"));
}

TEST_F(CommandConfigTest, ARecipesOwnProblemsStandInTheOneList) {
  entry_.problems = of_config<ToySections>([](const ToySections& own, const RunConfig& run) {
    std::vector<Problem> problems;
    if (own.recipe.width % own.recipe.heads != 0)
      problems.push_back({"heads do not divide the width", "recipe.heads", "change it"});
    if (run.data.samples_per_batch() > own.recipe.width)
      problems.push_back({"the batch is wider", "data.batch_size", "change it"});
    return problems;
  });
  const std::vector<Problem> found =
      problems({"--recipe.title=x", "--recipe.heads=2", "--batch-size=6", "--train.epochs=0", "--train.max_steps=0"});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].where, "train");
  EXPECT_EQ(found[1].where, "flag --recipe.heads");
  EXPECT_EQ(found[2].where, "flag --batch-size");
  EXPECT_TRUE(problems({"--recipe.title=x", "--recipe.heads=5"}).empty());
}

TEST_F(CommandConfigTest, AFileThatAKeyNamesIsALayerBelowTheFilesOfTheCommand) {
  entry_.sections = config::schema_of<ToySections>();
  entry_.named_configs = {{"recipe.model", [](const Json& tree, config::Layers::Foreign& file) {
                             for (const auto& [key, value] : tree.items()) {
                               if (key != "size") file.problems.push_back({"unknown key " + key, key, "remove it"});
                             }
                             return Json{{"recipe.width", tree.value("size", Json(1))}};
                           }}};
  const std::string named = file("model.yaml", "size: 9\n");
  (void)file("main.yaml", "recipe: {model: model.yaml, title: x, heads: 2}\n");
  const CommandConfig found = resolve({(folder_ / "main.yaml").string()});  // the second file is next to the file that names it
  EXPECT_EQ(found.resolved.values["recipe"]["width"], 9);
  EXPECT_EQ(found.resolved.origins.at("recipe.width"), "file " + named);
  EXPECT_EQ(resolve({"--recipe.title=x", "--recipe.model=" + named, "--recipe.width=3"}).resolved.values["recipe"]["width"], 3);
  EXPECT_EQ(resolve({"--recipe.title=x", "--preset=smoke", "--recipe.model=" + named}).resolved.values["recipe"]["width"], 9);
  const auto wrong = problems({"--recipe.title=x", "--recipe.model=" + file("bad.yaml", "size: 1\nthing: 2\n")});
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_EQ(wrong[0].where, "file " + (folder_ / "bad.yaml").string() + ":2");
  const auto gone = problems({"--recipe.title=x", "--recipe.model=gone.yaml"});
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_THAT(gone[0].what, HasSubstr("can't read the config file"));
}

TEST_F(CommandConfigTest, OverridesHoldOnlyWhatFlagsSay) {
  config::Arguments arguments(std::vector<std::string>{"--recipe.width=3", "--data", "elsewhere"});
  EXPECT_EQ(config_overrides(entry_, arguments), (Json{{"recipe.width", 3}, {"data.dir", "elsewhere"}}));
  config::Arguments wrong(std::vector<std::string>{"--recipe.width=many"});
  EXPECT_THROW(static_cast<void>(config_overrides(entry_, wrong)), ConfigError);
}

TEST_F(CommandConfigTest, HelpShowsTheRecipesOwnDefaults) {
  const config::Schema schema = schema_with_defaults(entry_);
  EXPECT_EQ(schema.find("recipe.width")->default_value, 5);
  EXPECT_EQ(schema.find("data.prefetch")->default_value, 2);
  EXPECT_TRUE(schema.find("recipe.title")->required);
}

TEST_F(CommandConfigTest, TableShowsEveryKey) {
  const CommandConfig config = resolve({"--recipe.title=x"});
  const config::Schema schema = schema_of(entry_);
  const std::string text = config_table(schema, config.resolved);
  for (const auto& leaf : schema.leaves) EXPECT_THAT(text, HasSubstr("\n" + leaf.path + " "));
  EXPECT_THAT(text, testing::ContainsRegex("recipe.title +\"x\" +flag --recipe.title"));
}

}  // namespace
}  // namespace millrace
