// Tests of the recipe's config, data and errors; tests/language_model tests whole runs.
#include "recipes/language_model/recipe.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/train/run/run.h"
#include "recipes/language_model/checks.h"
#include "recipes/language_model/corpus.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/entry_parts.h"
#include "recipes/language_model/make_data.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::language_model {
namespace {

using ::testing::ElementsAre;

class RecipeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::current_path() / "language_model_recipe_test" /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    context_.seed = 1;
    context_.notice = [this](const std::string& text) { notices_.push_back(text); };
  }
  void write_file(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  config::Resolved resolve(const std::string& preset, const Json& values, const std::string& toml = "") {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    const auto aliases = aliases_of(row);
    config::Layers layers(schema, aliases);
    layers.add_values(row.defaults, "recipe");
    for (const auto& [name, preset_values] : row.presets) {
      if (name == preset) layers.add_values(preset_values, "preset " + preset);
    }
    if (!toml.empty()) {
      write_file("original.toml", toml);
      layers.add_file(folder_ / "original.toml", row.convert_file);
    }
    layers.add_values(values, "test", {folder_});
    return layers.resolve();
  }
  LanguageModel recipe(const Json& values) {
    const Json config = resolve("smoke", values).values;
    run_ = config::read<RunConfig>(config);
    context_.config = &run_;
    const auto sections = config::read<Sections>(config);
    if (auto problems = LanguageModel::problems(sections, run_); !problems.empty()) throw ConfigError(std::move(problems));
    return {sections, context_};
  }

  std::filesystem::path folder_;
  RunConfig run_;
  Context context_;
  std::vector<std::string> notices_;
};

TEST_F(RecipeTest, PresetsHaveTheParametersOfTheirPage) {
  const std::map<std::string, std::int64_t> expected = {
      {"smoke", 101'376}, {"smoke_order2", 101'376},    {"small", 798'848},
      {"nano", 826'624},  {"small_model", 10'664'064},  {"full", 85'089'024},
      {"test", 401'920},  {"large_model", 302'382'080}, {"bigwill", 170'098'176}};
  const std::map<std::string, std::int64_t> vocabulary = {{"smoke", 20}, {"smoke_order2", 20}, {"nano", 260},
                                                          {"test", 40},  {"large_model", 69},  {"bigwill", 69}};
  ASSERT_EQ(entry().presets.size(), expected.size());
  for (const auto& [name, parameters] : expected) {
    const auto config = config::read<RecipeConfig>(resolve(name, Json::object()).values.at("recipe"));
    EXPECT_TRUE(problems_of(config).empty()) << name;
    const auto known = vocabulary.find(name);
    EXPECT_EQ(parameter_count(model_config(config, known == vocabulary.end() ? 43 : known->second)), parameters) << name;
  }
}

TEST_F(RecipeTest, TheOriginalsTomlIsRead) {
  const config::Resolved config = resolve("", Json::object(), R"(
sources = "corpus.txt"
model_name = "a small one"
model_path = "trained/small_model.pt"
epochs = 20
batch_size = 12
learning_rate = 5e-4
seq_len = 256
model_positions = 512
model_embd = 384
model_layer = 6
model_head = 6
model_activation = "relu"
model_dropout = 0.2
device = "cpu"
resume = null
max_length = 77
temperature = 0.5
beam_size = 3
model_seed = "Once upon"
max_context_length = 128
use_amp = false
log_gpu_memory = true
num_workers = 2
pin_memory = false
start_epoch = 0
resume_path = ""
val_fraction = 0.0
)");
  const Json& v = config.values;
  EXPECT_EQ(v["recipe"]["sources"], Json({"corpus.txt"}));
  EXPECT_EQ(v["run"]["name"], "small_model");
  EXPECT_EQ(v["train"]["epochs"], 20);
  EXPECT_EQ(v["data"]["batch_size"], 12);
  EXPECT_EQ(v["optim"]["learning_rate"], 5e-4);
  EXPECT_EQ(v["recipe"]["seq_len"], 256);
  EXPECT_EQ(v["recipe"]["model_positions"], 512);
  EXPECT_EQ(v["recipe"]["model_embd"], 384);
  EXPECT_EQ(v["recipe"]["model_layer"], 6);
  EXPECT_EQ(v["recipe"]["model_head"], 6);
  EXPECT_EQ(v["recipe"]["model_activation"], "relu");
  EXPECT_EQ(v["recipe"]["model_dropout"], 0.2);
  EXPECT_EQ(v["device"]["name"], "cpu");
  EXPECT_EQ(v["train"]["resume"], "auto");
  EXPECT_EQ(v["generate"]["max_length"], 77);
  EXPECT_EQ(v["generate"]["temperature"], 0.5);
  EXPECT_EQ(v["generate"]["beam_size"], 3);
  EXPECT_EQ(v["generate"]["prompt"], "Once upon");
  EXPECT_EQ(v["generate"]["max_context_length"], 128);
  EXPECT_EQ(v["precision"]["dtype"], "fp32");
  EXPECT_EQ(v["log"]["gpu_memory"], true);
  EXPECT_EQ(v["data"]["workers"], 2);
  EXPECT_EQ(v["data"]["pin_memory"], false);
  EXPECT_EQ(v["recipe"]["val_fraction"], 0.0);
  EXPECT_THAT(config.notices,
              ::testing::UnorderedElementsAre(::testing::HasSubstr("original.toml:16"), "model_name: model_path names the run"));
}

// AGI2's first config files name a single text, under another key.
TEST_F(RecipeTest, TheOriginalsFirstTomlIsRead) {
  const config::Resolved config = resolve("", Json::object(), "corpus_path = \"samples/corpus.txt\"\nseq_len = 64\n");
  EXPECT_EQ(config.values["recipe"]["sources"], Json({"samples/corpus.txt"}));
}

// Some config files of AGI2 have both keys; AGI2 itself used the newer one.
TEST_F(RecipeTest, OfBothWordsForTheTextsTheNewerHolds) {
  const config::Resolved config =
      resolve("", Json::object(), "sources = [\"a.txt\", \"b.txt\"]\ncorpus_path = \"samples/corpus.txt\"\nseq_len = 64\n");
  EXPECT_EQ(config.values["recipe"]["sources"], Json({"a.txt", "b.txt"}));
  EXPECT_THAT(config.notices,
              ::testing::Contains(::testing::HasSubstr("corpus_path is not used: it is an older name of sources")));
}

// Later config files of AGI2 are about another model. That must be reported in one sentence instead of one for each key.
TEST_F(RecipeTest, AFileOfTheOriginalsLaterModelGetsOneSentence) {
  const std::string text = refusal([this] {
    (void)resolve("smoke", Json::object(),
                  "tokenizer = \"tiktoken\"\nseq_len_start = 2\nseq_len_end = 1024\ngeometric_ratio = 0.7\n");
  });
  EXPECT_THAT(text, ::testing::HasSubstr("the file is for the original's later model"));
  EXPECT_THAT(text, ::testing::HasSubstr("original.toml:4"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("seq_len_end")));
}

TEST_F(RecipeTest, ContradictionsAreRefusedAllAtOnce) {
  EXPECT_EQ(refusal([&] {
              recipe({{"recipe.seq_len", 600}, {"recipe.overlap", 600}, {"recipe.model_embd", 65}, {"recipe.model_head", 2}});
            }),
            "ConfigError  4 problems in the config\n"
            "   1  a width of 65 can't be divided among 2 heads\n"
            "        where    recipe.model_embd, recipe.model_head\n"
            "        next     make model_embd a multiple of model_head\n"
            "   2  a width of 65 is odd: positions are pairs of sine and cosine\n"
            "        where    recipe.model_embd\n"
            "        next     use an even width, such as 66\n"
            "   3  sequences of 600 tokens need 599 positions, but the model has 64\n"
            "        where    recipe.seq_len, recipe.model_positions\n"
            "        next     lower seq_len to <= 65, or raise model_positions\n"
            "   4  an overlap of 600 tokens leaves no new token in a sequence of 600\n"
            "        where    recipe.overlap, recipe.seq_len\n"
            "        next     lower overlap below seq_len");
}

TEST_F(RecipeTest, MissingTextIsNamedWithThePlacesLookedAt) {
  write_file("a.txt", "abc");
  const auto find = [&](const Json& sources, const std::string& data_folder) {
    std::vector<std::string> notices;
    return find_sources(config::read<RecipeConfig>(Json{{"sources", sources}}), data_folder, notices);
  };
  const std::string text = (folder_ / "a.txt").string();
  EXPECT_THAT(find({text, text}, ""), ElementsAre(folder_ / "a.txt", folder_ / "a.txt"));
  EXPECT_EQ(refusal([&] {
              find({text, "letters.txt"}, "");
            }),
            "DataError  source 2 of 2: letters.txt does not exist\n"
            "  where    looked in " +
                std::filesystem::current_path().string() +
                "\n  next     correct recipe.sources; paths are relative to the config file or the current folder");
  EXPECT_THAT(find(Json::array(), folder_.string()), ElementsAre(folder_ / "a.txt"));
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(refusal([&] { find(Json::array(), (folder_ / "empty").string()); }),
            "DataError  there is no .txt file in " + (folder_ / "empty").string() +
                "\n  where    recipe.sources, data.dir\n"
                "  next     name text files with --sources a.txt,b.txt, or their folder with --data DIR");
}

TEST_F(RecipeTest, TextBecomesTwoSplitsOfWindowsOneTokenApart) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i % 16);
  write_file("a.txt", text);
  LanguageModel model = recipe({{"recipe.sources", {"a.txt"}}, {"recipe.seq_len", 16}, {"recipe.val_fraction", 0.2}});
  model.before_training();
  EXPECT_EQ(model.data(Split::train).datasets[0].source->size(), 800 / 16);
  EXPECT_EQ(model.data(Split::validation).datasets[0].source->size(), 200 / 16);
  EXPECT_THAT(notices_, ::testing::Contains("12 validation sequences, 8 tokens left over at the end"));
  EXPECT_EQ(model.model().config().vocab_size, 20);

  const Batch batch = model.prepare(Batch(Tensors{{"tokens", at::arange(4, 20, at::kInt).view({1, 16})}}));
  EXPECT_TRUE(at::equal(batch["input"], at::arange(4, 19, at::kLong).view({1, 15})));
  EXPECT_TRUE(at::equal(batch["tokens"], batch["input"])) << "what predict() is rehearsed with";
  EXPECT_TRUE(at::equal(batch["target"], at::arange(5, 20, at::kLong).view({1, 15})));
  EXPECT_EQ(model.facts().units_per_sample, 15);
  EXPECT_NEAR(model.facts().blind->loss, std::log(16.0), 1e-12) << "sixteen letters, each as frequent";

  LanguageModel all = recipe({{"recipe.sources", {"a.txt"}}, {"recipe.val_fraction", 0}});
  all.before_training();
  EXPECT_TRUE(all.data(Split::validation).datasets.empty());
}

TEST_F(RecipeTest, TooShortATextSaysWhatWouldFit) {
  write_file("a.txt", std::string(50, 'a'));
  LanguageModel model = recipe({{"recipe.sources", {"a.txt"}}, {"recipe.val_fraction", 0}});
  model.before_training();
  const std::string text = refusal([&] { model.data(Split::train); });
  EXPECT_THAT(text, ::testing::StartsWith("DataError"));
  EXPECT_THAT(text, ::testing::HasSubstr("50"));
  EXPECT_THAT(text, ::testing::HasSubstr("seq_len"));
}

TEST_F(RecipeTest, TheVocabularyTravelsWithTheState) {
  write_file("a.txt", std::string(100, 'a') + "Bc\n");
  LanguageModel first = recipe({{"recipe.sources", {"a.txt"}}, {"recipe.val_fraction", 0}});
  first.before_training();
  LanguageModel second = recipe(Json::object());
  second.load_state(first.state());
  EXPECT_EQ(second.model().config().vocab_size, 8);
  EXPECT_EQ(second.state().json, first.state().json);
  const GenerateConfig config{.max_length = 5};
  EXPECT_EQ(second.write("abc", config, false), first.write("abc", config, false));
}

TEST_F(RecipeTest, AModelThatNoMemoryHoldsIsCountedFirst) {
  write_file("a.txt", "abcdefghijklmnop");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::int64_t>>{{"recipe.model_layer", std::int64_t{1} << 31},
                                                                                    {"recipe.model_layer", most},
                                                                                    {"recipe.model_embd", std::int64_t{1} << 40},
                                                                                    {"recipe.model_positions", most - 1},
                                                                                    {"recipe.vocab_size", most}}) {
    LanguageModel model = recipe({{"recipe.sources", {"a.txt"}}, {key, value}});
    model.before_training();
    EXPECT_THAT(refusal([&] { model.model(); }),
                ::testing::ContainsRegex("ConfigError  a model of [0-9.e+]+ parameters takes [0-9.e+]+ [A-Z]+ before its first "
                                         "step, .* are free\n  where    recipe.model_embd, recipe.model_layer, "))
        << key << " " << value;
  }
}

TEST_F(RecipeTest, AnEmbeddingTooSmallForTheTextIsRefused) {
  write_file("a.txt", "abcdefghijklmnop");
  LanguageModel model = recipe({{"recipe.sources", {"a.txt"}}, {"recipe.vocab_size", 10}});
  model.before_training();
  EXPECT_EQ(refusal([&] { model.model(); }),
            "ConfigError  an embedding of 10 rows has no room for the text's 20 tokens\n"
            "  where    recipe.vocab_size\n"
            "  next     raise it to at least 20, or set it to 0");
}

TEST_F(RecipeTest, PredictionTakesTokensAndRefusesWhatIsNone) {
  LanguageModel model = recipe({{"recipe.vocab_size", 20}});
  model.model().eval();
  const at::Tensor tokens = at::arange(4, 14, at::kInt).view({2, 5});
  const at::Tensor logits = model.predict({{"tokens", tokens}}).at("logits");
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 5, 20}));
  EXPECT_EQ(refusal([&] { model.predict({}); }),
            "UsageError  the input has no tensor \"tokens\"\n  where    predict\n"
            "  next     give token ids of shape (batch, length) under that name");
  EXPECT_EQ(refusal([&] {
              model.predict({{"tokens", at::arange(8, 28).view({4, 5})}});
            }),
            "UsageError  token 20 is not in the vocabulary of 20\n  where    \"tokens\" row 2, place 2\n"
            "  next     encode the text with this model's own tokenizer");
  EXPECT_THAT(refusal([&] { model.predict({{"tokens", tokens.to(at::kFloat)}}); }), ::testing::HasSubstr("must be integers"));
  EXPECT_THAT(refusal([&] {
                model.predict({{"tokens", at::zeros({1, 65}, at::kLong)}});
              }),
              ::testing::HasSubstr("is 65 long, but the model has 64 positions"));
}

TEST_F(RecipeTest, SampleTextHasTheEntropyItClaims) {
  const std::string text = sample_text({.order = 1, .training_letters = 200'000, .validation_letters = 0}, 3);
  EXPECT_EQ(text, sample_text({.order = 1, .training_letters = 200'000, .validation_letters = 0}, 3));
  EXPECT_NE(text, sample_text({.order = 1, .training_letters = 200'000, .validation_letters = 0}, 4));
  std::map<int, double> letters;
  std::map<int, double> distances;
  for (std::size_t i = 1; i < text.size(); ++i) {
    letters[text[i]] += 1;
    distances[(text[i] - text[i - 1] + 16) % 16] += 1;
  }
  const auto entropy = [&](const std::map<int, double>& counts) {
    double sum = 0;
    for (const auto& [key, count] : counts) sum -= count / 199'999 * std::log(count / 199'999);
    return sum;
  };
  EXPECT_NEAR(entropy(letters), kUnigramEntropy, 1e-3);
  EXPECT_NEAR(entropy(distances), kEntropyRate, 1e-2);
  EXPECT_THAT(distances, ::testing::SizeIs(4));
}

TEST_F(RecipeTest, PresetsMakeTheirDataOrSayThatTheyNeedAText) {
  const Entry row = entry();
  row.make_data("smoke", folder_, 0);
  EXPECT_EQ(std::filesystem::file_size(folder_ / "letters.txt"), 220'000U);
  std::ifstream truth(folder_ / "truth.json");
  EXPECT_EQ(Json::parse(truth).at("validation_tokens"), 20'000);
  EXPECT_EQ(refusal([&] { row.make_data("test", folder_, 0); }),
            "ConfigError  preset test is meant for your own text and has no sample text\n  where    preset test\n"
            "  next     give --sources FILE, or take preset smoke, small or full");
  EXPECT_TRUE(row.needs_data(resolve("smoke", Json::object()).values));
  EXPECT_FALSE(row.needs_data(resolve("smoke", {{"data.dir", "x"}}).values));
  EXPECT_FALSE(row.needs_data(resolve("smoke", {{"recipe.sources", {"x"}}}).values));
}

TEST_F(RecipeTest, RealTextHasTheNumbersOfThePage) {
  const auto text = std::filesystem::path(MILLRACE_SOURCE_DIR) / ".." / "shared" / "data" / "text" / "tinyshakespeare.txt";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "shared/data/text/tinyshakespeare.txt is not here";
  const auto corpus = [&](const std::string& vocab_from) {
    notices_.clear();
    return read_corpus(config::read<RecipeConfig>(Json{{"sources", {text.string()}}, {"vocab_from", vocab_from}}), "", nullptr,
                       context_);
  };
  const data::TextTokens all = corpus("all");
  EXPECT_EQ(all.tokens->size(), 1'115'394);
  EXPECT_EQ(all.tokenizer->vocab_size(), 43);
  EXPECT_EQ(all.unknown, 0);
  EXPECT_EQ(data::TokenSource(all.tokens, {.seq_len = 128}).size(), 8'714);
  std::ostringstream raw;
  raw << std::ifstream(text).rdbuf();
  std::string lowered = raw.str();
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  EXPECT_TRUE(all.tokenizer->decode(all.tokenizer->encode(raw.str())) == lowered);  // not EXPECT_EQ, because the texts are too
                                                                                    // long to print
  const data::TextTokens first = corpus("first_50000");
  EXPECT_EQ(first.tokenizer->vocab_size(), 40);
  EXPECT_EQ(first.unknown, 31);
  ASSERT_FALSE(notices_.empty());
  EXPECT_THAT(notices_.back(), ::testing::HasSubstr("31 of 1,115,394 characters"));
}

}  // namespace
}  // namespace millrace::recipes::language_model
