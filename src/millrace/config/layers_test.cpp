#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "millrace/config/detail/test_config.h"
#include "millrace/config/schema.h"
#include "millrace/config/schema_of.h"

namespace millrace::config {
namespace {

using test::settings_aliases;
using test::settings_schema;
using test::text_of_problems;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

// Layers in which all required keys are set.
Layers make_layers(std::span<const Alias> aliases = {}) {
  Layers layers(settings_schema(), aliases);
  layers.add_values({{"data", {{"sources", {"a.txt"}}}}}, "preset small");
  return layers;
}

TEST(Layers, ResolveHoldsEveryLeafWithItsOrigin) {
  const Resolved resolved = make_layers().resolve();
  EXPECT_EQ(resolved.origins.size(), settings_schema().leaves.size());
  EXPECT_EQ(resolved.origins.at("data.sources"), "preset small");
  EXPECT_EQ(resolved.origins.at("optim.betas"), "default");
  EXPECT_EQ(resolved.values["optim"]["betas"], Json({0.9, 0.999}));
  EXPECT_EQ(resolved.values["data"]["workers"], "auto");
  EXPECT_EQ(resolved.values["model"]["dropout"], nullptr);
}

TEST(Layers, LaterSourcesWinPerLeaf) {
  Layers layers = make_layers();
  layers.add_values({{"optim.momentum", 0.1}, {"optim", {{"name", "adam"}}}}, "preset small");
  layers.add_text("{\n\"optim\": {\"momentum\": 0.2, // why\n \"learning_rate\": 1}}", ".json", "a.json");
  layers.add_text("[optim]\nmomentum = 0.3\n[model.sizes]\na = 1\n", ".toml", "b.toml");
  layers.add_text("model:\n  sizes: {b: 2}\n", ".yaml", "c.yaml");
  layers.add_environment(Variables{{"MILLRACE_OPTIM__MOMENTUM", "0.4"}, {"MILLRACE_TORCH", "/x"}, {"HOME__X", "y"}});
  EXPECT_THAT(layers.add_flags(Words{"--optim.momentum", "0.5"}), IsEmpty());
  const Resolved resolved = layers.resolve();
  EXPECT_EQ(resolved.values["optim"]["momentum"], 0.5);
  EXPECT_EQ(resolved.origins.at("optim.momentum"), "flag --optim.momentum");
  EXPECT_EQ(resolved.origins.at("optim.learning_rate"), "file a.json:3");
  EXPECT_EQ(resolved.origins.at("optim.name"), "preset small");
  EXPECT_EQ(resolved.values["model"]["sizes"], Json({{"b", 2}}));  // a map is replaced as a whole
  EXPECT_EQ(resolved.origins.at("model.sizes"), "file c.yaml:2");
}

TEST(Layers, EnvironmentNamesItsVariable) {
  Layers layers = make_layers();
  layers.add_environment(Variables{{"MILLRACE_DATA__BATCH_SIZE", "16"}, {"MILLRACE_OPTIM__BETAS", "0.5, 0.6"}});
  const Resolved resolved = layers.resolve();
  EXPECT_EQ(resolved.values["data"]["batch_size"], 16);
  EXPECT_EQ(resolved.values["optim"]["betas"], Json({0.5, 0.6}));
  EXPECT_EQ(resolved.origins.at("data.batch_size"), "environment MILLRACE_DATA__BATCH_SIZE");
}

TEST(Layers, AVariableWithoutItsSecondUnderscoreIsNamed) {
  Layers layers = make_layers();
  layers.add_environment(Variables{{"MILLRACE_OPTIM_LEARNING_RATE", "1"}, {"MILLRACE_OPTIM", "x"}, {"MILLRACE_CPU", "avx2"}});
  EXPECT_EQ(text_of_problems(layers),
            "ConfigError  variable \"MILLRACE_OPTIM_LEARNING_RATE\" sets nothing: the dot of "
            "optim.learning_rate is written as two underscores\n"
            "  where    environment\n"
            "  next     write MILLRACE_OPTIM__LEARNING_RATE, or unset it");
}

TEST(Flags, TakeValuesInEachForm) {
  Layers layers = make_layers(settings_aliases());
  const Words rest = layers.add_flags(Words{"train", "--data.batch-size=7", "--data.workers", "2", "--no-data.shuffle",
                                            "--optim.fused", "x.toml", "--lr=0.5", "--model.blocks=[{\"width\": 2}]",
                                            "--model.sizes", "{\"a\": 1}", "-v", "--device", "w.safetensors", "--", "--kept"});
  EXPECT_THAT(rest, ElementsAre("train", "x.toml", "-v", "--kept"));
  const Json values = layers.resolve().values;
  EXPECT_EQ(values["data"]["batch_size"], 7);
  EXPECT_EQ(values["data"]["workers"], 2);
  EXPECT_EQ(values["data"]["shuffle"], false);
  EXPECT_EQ(values["optim"]["fused"], true);
  EXPECT_EQ(values["optim"]["learning_rate"], 0.5);
  EXPECT_EQ(values["model"]["blocks"], Json::parse(R"([{"width": 2, "gated": false}])"));
  EXPECT_EQ(values["model"]["sizes"], Json({{"a", 1}}));
  EXPECT_EQ(values["model"]["start_from"], "w.safetensors");
}

TEST(Flags, ABareBooleanTakesOnlyTrueOrFalse) {
  Layers layers = make_layers();
  EXPECT_THAT(layers.add_flags(Words{"--data.shuffle", "false", "--optim.fused", "auto"}), ElementsAre("auto"));
  const Json values = layers.resolve().values;
  EXPECT_EQ(values["data"]["shuffle"], false);
  EXPECT_EQ(values["optim"]["fused"], true);
}

TEST(Flags, TheLastOfSeveralCounts) {
  Layers layers = make_layers(settings_aliases());
  layers.add_flags(Words{"--lr=1", "--optim.learning_rate=2", "--lr=3"});
  EXPECT_EQ(layers.resolve().values["optim"]["learning_rate"], 3.0);
}

TEST(Flags, SayWhatIsWrong) {
  Layers layers = make_layers();
  layers.add_flags(Words{"--data.batch_sise=3", "--no-data.shuffle=1", "--no-optim.name", "--optim.momentum", "--data.workers"});
  const std::string text = text_of_problems(layers);
  EXPECT_THAT(text, HasSubstr("unknown flag --data.batch_sise\n        where    command line\n"
                              "        next     did you mean --data.batch_size?"));
  EXPECT_THAT(text, HasSubstr("flag --no-data.shuffle takes no value"));
  EXPECT_THAT(text, HasSubstr("unknown flag --no-optim.name"));
  EXPECT_THAT(text, HasSubstr("flag --optim.momentum has no value"));
  EXPECT_THAT(text, HasSubstr("next     write --data.workers=<auto|integer>"));
}

TEST(Aliases, AreAcceptedEverywhereAndConverted) {
  Layers layers = make_layers(settings_aliases());
  layers.add_text("lr = 0.25\nnum_workers = 3\nuse_cpu = true\n", ".toml", "old.toml");
  layers.add_text("rate: 0.75\noptim: sgd\n", ".yaml", "old.yaml");
  const Resolved resolved = layers.resolve();
  EXPECT_EQ(resolved.values["optim"]["learning_rate"], 0.25);
  EXPECT_EQ(resolved.values["data"]["workers"], 3);
  EXPECT_EQ(resolved.values["optim"]["fused"], false);
  EXPECT_EQ(resolved.values["model"]["dropout"], 0.25);
  EXPECT_EQ(resolved.values["optim"]["name"], "sgd");
  EXPECT_EQ(resolved.origins.at("optim.learning_rate"), "file old.toml:1");
}

TEST(Aliases, ANullResultLeavesTheKeyAlone) {
  Layers layers = make_layers(settings_aliases());
  layers.add_flags(Words{"--no-use-cpu"});
  EXPECT_EQ(layers.resolve().origins.at("optim.fused"), "default");
  layers.add_flags(Words{"--use-cpu"});
  EXPECT_EQ(layers.resolve().values["optim"]["fused"], false);
}

TEST(Aliases, SetTwiceOrWithoutMeaningIsAProblem) {
  Layers layers = make_layers(settings_aliases());
  layers.add_text("lr = 1\nrate = \"much\"\n[optim]\nlearning_rate = 2\n", ".toml", "a.toml");
  const std::string text = text_of_problems(layers);
  EXPECT_THAT(
      text, HasSubstr("optim.learning_rate is set twice, the second time as optim.learning_rate\n"
                      "        where    file a.toml:4\n        next     remove one of them; the first is lr, at file a.toml:1"));
  EXPECT_THAT(text, HasSubstr("rate is \"much\", which has no meaning for model.dropout\n        where    file a.toml:2"));
}

TEST(Layers, AKeyWrittenInTwoFormsIsToldWithBothLines) {
  for (const auto& [text, suffix, lines] :
       {std::tuple{"optim:\n  learning_rate: 1\ndata:\n  workers: 2\noptim.learning_rate: 2\n", ".yaml", "file a:2 and a:5"},
        std::tuple{"{\"optim.learning_rate\": 2,\n\"optim\": {\n\"learning_rate\": 1}}", ".json", "file a:1 and a:3"}}) {
    Layers layers = make_layers();
    layers.add_text(text, suffix, "a");
    const std::string problems = text_of_problems(layers);
    EXPECT_THAT(problems, HasSubstr("optim.learning_rate is set twice\n"));
    EXPECT_THAT(problems, HasSubstr("where    " + std::string(lines) + "\n"));
  }
}

// A flag of another program that has no effect here must leave the next word alone, and a notice must report it.
TEST(Aliases, AWordWithoutAKeyIsSaidOnceAndChangesNothing) {
  const auto said = [](const Json& value) { return value == Json(false) ? "" : "fast: it is " + value.dump(); };
  const std::vector<Alias> aliases = {
      {.name = "fast", .path = "", .convert = nullptr, .note = "", .notice = said},
      {.name = "project", .path = "", .convert = nullptr, .note = "", .notice = said, .takes_text = true}};
  Layers layers = make_layers(aliases);
  layers.add_text("fast = true\n", ".toml", "a.toml");
  const Words rest =
      layers.add_flags(Words{"--fast", "word", "--fast", "true", "--fast=7", "--no-fast", "--fast", "3", "--project", "a b"});
  EXPECT_THAT(rest, testing::ElementsAre("word"));
  const Resolved resolved = layers.resolve();
  EXPECT_THAT(resolved.notices,
              testing::ElementsAre("fast: it is true", "fast: it is 7", "fast: it is 3", "fast: it is \"a b\""));
  EXPECT_EQ(resolved.values, make_layers().resolve().values);
  EXPECT_THAT(text_of_problems(layers), "");
  Layers open = make_layers(aliases);
  open.add_flags(Words{"--project"});
  EXPECT_THAT(text_of_problems(open), HasSubstr("flag --project has no value"));
}

TEST(Aliases, OfAnUnknownKeyAreRefused) {
  const std::vector<Alias> aliases = {{.name = "x", .path = "data.batchsize", .convert = {}, .note = ""}};
  try {
    const Layers layers(settings_schema(), aliases);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message().what, "alias \"x\" stands for \"data.batchsize\", which is no key");
    EXPECT_THAT(error.message().next, HasSubstr("did you mean data.batch_size?"));
  }
}

TEST(Layers, SuggestKeys) {
  Layers layers = make_layers(settings_aliases());
  layers.add_text(R"({"learning_rate": 1, "data": {"zzzzzz": 1}, "qqqqqqqqqq": {"a": {"b": 1}}, "model": 3, "batch_sizes": 2})",
                  ".json", "a.json");
  const std::string text = text_of_problems(layers);
  EXPECT_THAT(text, HasSubstr("5 problems"));
  EXPECT_THAT(text, HasSubstr("unknown key \"learning_rate\"\n        where    file a.json:1\n"
                              "        next     did you mean optim.learning_rate?"));
  EXPECT_THAT(
      text,
      HasSubstr("remove it; the keys of that section are data.sources, data.batch_size, data.workers, data.shuffle, data.cache"));
  EXPECT_THAT(text, HasSubstr("unknown key \"qqqqqqqqqq\"\n        where    file a.json:1\n"
                              "        next     remove it; the sections are data, optim, model"));
  EXPECT_THAT(text, HasSubstr("model is 3, but model is a section\n        where    file a.json:1\n"
                              "        next     set a key of the section, such as model.dropout"));
  EXPECT_THAT(text, HasSubstr("did you mean data.batch_size?"));
}

TEST(Layers, RequiredKeysMustBeSet) {
  EXPECT_EQ(text_of_problems(Layers(settings_schema())),
            "ConfigError  data.sources is required and not set\n"
            "  where    no file, variable or flag sets it\n"
            "  next     add it to the config, or --data.sources=<list of texts>: Files to read.");
}

TEST(Layers, ProblemsOfTheProgramAreKept) {
  Layers layers = make_layers();
  layers.add_problem({.what = "one", .where = "", .next = "two"});
  EXPECT_EQ(text_of_problems(layers), "ConfigError  one\n  next     two");
}

TEST(Layers, TextMustBeUtf8) {
  Layers layers = make_layers();
  layers.add_flags(Words{"--data.cache=\xFF\xFE"});
  EXPECT_THAT(text_of_problems(layers), HasSubstr("data.cache is not UTF-8 text\n  where    flag --data.cache"));
}

TEST(Layers, AnyNumberOfDotsIsAnUnknownKey) {
  std::string dots = "a";
  std::string scores = "MILLRACE_A";
  for (int i = 0; i < 20'000; ++i) {
    dots += ".a";
    scores += "__A";
  }
  for (const std::string& start : {std::string(), std::string("optim."), std::string("no-")}) {
    Layers layers = make_layers();
    const std::vector<std::string> words = {"--" + start + dots + "=1"};
    static_cast<void>(layers.add_flags(words));
    EXPECT_THROW(static_cast<void>(layers.resolve()), ConfigError);
  }
  Layers layers = make_layers();
  const std::vector<std::pair<std::string, std::string>> variables = {{scores, "1"}};
  layers.add_environment(variables);
  layers.add_values({{dots, 1}}, "preset x");
  EXPECT_THROW(static_cast<void>(layers.resolve()), ConfigError);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("config_files_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string problems_of(const std::filesystem::path& path) {
    Layers layers = make_layers();
    layers.add_file(path);
    return text_of_problems(layers);
  }
  std::filesystem::path folder_;
};

TEST_F(Files, AreReadBySuffix) {
  std::ofstream(folder_ / "a.JSON") << R"({"optim": {"momentum": 0.125}})";
  Layers layers = make_layers();
  layers.add_file(folder_ / "a.JSON");
  EXPECT_EQ(layers.resolve().origins.at("optim.momentum"), "file " + (folder_ / "a.JSON").string() + ":1");
}

TEST_F(Files, ThatCantBeReadAreProblems) {
  std::filesystem::create_directory(folder_ / "folder.json");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.toml").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder_ / "loop.yaml", folder_ / "loop.yaml");
  std::ofstream(folder_ / "a.txt") << "x = 1";
  std::ofstream(folder_ / "huge.json").put('{');
  std::filesystem::resize_file(folder_ / "huge.json", 5'000'000'000);
  EXPECT_EQ(problems_of(folder_ / "none.json"),
            "ConfigError  can't read the config file: No such file or directory\n  where    " + (folder_ / "none.json").string() +
                "\n  next     check the path: a folder or file in it does not exist");
  EXPECT_THAT(problems_of(folder_ / "folder.json"), HasSubstr("Is a directory"));
  EXPECT_THAT(problems_of(folder_ / "pipe.toml"), HasSubstr("can't read the config file"));
  EXPECT_THAT(problems_of(folder_ / "loop.yaml"), HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(problems_of(folder_ / "a.txt"), HasSubstr("next     name the file .json, .toml, .yaml or .yml"));
  EXPECT_THAT(problems_of(folder_ / "huge.json"), HasSubstr("larger than 1 MB"));
}

struct Places {
  std::string folder;
  std::vector<std::string> files;
  std::string from = "auto";
  std::string word;
  static consteval auto fields() {
    using C = Places;
    return std::tuple{field<&C::folder>("").path(), field<&C::files>("").path().free_on_resume(),
                      field<&C::from>("").path("auto|never"), field<&C::word>("")};
  }
};
struct PlaceSections {
  Places in;
  Places out;
  static consteval auto fields() {
    return std::tuple{field<&PlaceSections::in>(""), field<&PlaceSections::out>("").free_on_resume()};
  }
};

TEST(Layers, APathInAFileIsLookedForBesideThatFile) {
  namespace stdfs = std::filesystem;
  const stdfs::path root = stdfs::path(testing::TempDir()) / "layers_paths";
  stdfs::remove_all(root);
  for (const char* name : {"data", "b", "auto", "word"}) stdfs::create_directories(root / name);
  std::ofstream(root / "a.json")
      << R"({"in": {"folder": "data", "files": ["b", "missing", "/tmp"], "from": "auto", "word": "word"}, "out.from": "b"})";
  const Schema schema = schema_of<PlaceSections>();
  Layers layers(schema);
  layers.add_file(root / "a.json");
  layers.add_flags(Words{"--out.folder=data"});
  const Json values = layers.resolve().values;
  EXPECT_EQ(values["in"]["folder"], (root / "data").string());
  EXPECT_EQ(values["in"]["files"], Json({(root / "b").string(), "missing", "/tmp"})) << "what is not there stays as written";
  EXPECT_EQ(values["in"]["from"], "auto") << "a word, although a folder has that name";
  EXPECT_EQ(values["in"]["word"], "word") << "text";
  EXPECT_EQ(values["out"]["from"], (root / "b").string());
  EXPECT_EQ(values["out"]["folder"], "data") << "a flag speaks of the current folder";
  EXPECT_EQ(layers.last("in.folder"), Json("data"));
  EXPECT_EQ(layers.last("in.nothing"), std::nullopt);

  // Values of an earlier run's config: their paths are first looked for in the current folder.
  Layers run(schema);
  run.add_values({{"in.folder", "data"}, {"in.files", {"b"}}}, "run r", {"", root});
  const Resolved resolved = run.resolve();
  EXPECT_EQ(resolved.values["in"]["folder"], (root / "data").string());
  EXPECT_EQ(resolved.origins.at("in.folder"), "run r");
}

TEST(Layers, FieldsSayWhatIsAPathAndWhatIsFreeOnResume) {
  const Schema schema = schema_of<PlaceSections>();
  EXPECT_EQ(schema.find("in.folder")->type, "path");
  EXPECT_EQ(schema.find("in.files")->type, "list of paths");
  EXPECT_EQ(schema.find("in.from")->type, "auto|never|path");
  EXPECT_TRUE(schema.find("in.from")->is_path);
  EXPECT_FALSE(schema.find("in.word")->is_path);
  EXPECT_TRUE(schema.find("in.files")->free_on_resume);
  EXPECT_FALSE(schema.find("in.folder")->free_on_resume);
  EXPECT_TRUE(schema.find("out.word")->free_on_resume) << "a whole section";
}

}  // namespace
}  // namespace millrace::config
