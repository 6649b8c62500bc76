// Checkpoints and state dicts of a model built like the Python original, and ours in its format: the same logits, or a refusal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/run/run.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/originals/weights.h"
#include "recipes/language_model/recipe.h"
#include "tests/support/peer.h"

namespace millrace::recipes::language_model {
namespace {

using ::testing::HasSubstr;

class Original : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::filesystem::path(MILLRACE_SOURCE_DIR) / ".deps/venv/bin/python"))
      GTEST_SKIP() << "no Python environment in .deps/venv";
    folder_ = std::filesystem::current_path() / "language_model_original";
    std::filesystem::create_directories(folder_);
    ASSERT_EQ(peer({"save", folder_.string()}), 0);
    const Tensors out = snapshot::read_tensors(folder_ / "out.safetensors");
    tokens_ = out.at("tokens");
    logits_ = out.at("logits");
  }

  static int peer(const std::vector<std::string>& words, const std::filesystem::path& said = {}) {
    return test::run_peer(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/language_model/original.py", words, {.said = said});
  }

  [[nodiscard]] Loaded load(const std::string& file, const std::vector<std::string>& flags = {}) {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    config::Layers layers(schema, row.aliases);
    layers.add_values(row.defaults, "recipe");
    layers.add_flags(flags);
    const config::Resolved config = layers.resolve();
    const std::filesystem::path said = folder_ / "console.txt";
    const int descriptor = ::open(said.c_str(), O_CREAT | O_TRUNC | O_WRONLY, S_IRUSR | S_IWUSR);
    telemetry::Console console(telemetry::Console::Mode::plain, descriptor);
    Loaded loaded = load_for_inference(row, folder_ / file, &config, Json::object(), console);
    ::close(descriptor);
    said_ = Fs::real().read_file(said);
    return loaded;
  }
  // Relative to the largest logit.
  [[nodiscard]] double relative(const at::Tensor& logits) const {
    return (logits - logits_).abs().max().item<double>() / logits_.abs().max().item<double>();
  }
  [[nodiscard]] double apart(Loaded& loaded) const {
    return relative(loaded.recipe->predict({{"tokens", tokens_}}).at("logits"));
  }
  [[nodiscard]] std::string refusal(const std::string& file, const std::vector<std::string>& flags = {}) {
    try {
      (void)load(file, flags);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  std::filesystem::path folder_;
  at::Tensor tokens_, logits_;
  std::string said_;  // by the last load()
};

TEST_F(Original, ACheckpointSaysAllThatItsModelNeeds) {
  Loaded loaded = load("checkpoint.pt");
  EXPECT_LT(apart(loaded), 1e-5);
  EXPECT_THAT(loaded.which, HasSubstr("model_state_dict"));
  EXPECT_THAT(said_, HasSubstr("recipe.embedding_scale is false"));
  EXPECT_THAT(said_, HasSubstr("vocabulary of 10 tokens"));
  auto& model = dynamic_cast<LanguageModel&>(unguarded(*loaded.recipe));
  GenerateConfig greedy;
  greedy.max_length = 4;
  EXPECT_FALSE(model.write("a b", greedy, /*beam=*/false).empty()) << "without a text: the characters are the checkpoint's";
}

TEST_F(Original, AStateDictIsTheSameOrRefused) {
  Loaded with_buffer = load("state.pt", {"--recipe.model_head=4"});
  EXPECT_LT(apart(with_buffer), 1e-5);
  Loaded without = load("bare.pt", {"--recipe.model_head=4", "--recipe.embedding_scale=false"});
  EXPECT_LT(apart(without), 1e-5);
  EXPECT_EQ(said_, "");
  Loaded guessed = load("bare.pt", {"--recipe.model_head=4"});
  EXPECT_GT(apart(guessed), 0.1);
  EXPECT_THAT(said_, HasSubstr("does not say whether its embeddings are scaled"));
  EXPECT_THAT(refusal("state.pt"), HasSubstr("do not say how many heads"));
  EXPECT_THAT(refusal("state.pt", {"--recipe.model_head=4", "--recipe.embedding_scale=true"}),
              HasSubstr("need recipe.embedding_scale=false (position_embeddings.pe comes from a model"));
  EXPECT_THAT(refusal("checkpoint.pt", {"--recipe.model_embd=64"}), HasSubstr("need recipe.model_embd=32"));
}

TEST_F(Original, OursLoadThereOrAreRefusedThere) {
  const Loaded loaded = load("checkpoint.pt");
  const auto send = [&](bool scaled) {
    Tensors weights;
    for (const auto& named : loaded.recipe->model().named_parameters()) weights[named.key()] = named.value().detach();
    Json config = loaded.config.values;
    config["recipe"]["embedding_scale"] = scaled;
    const std::vector<std::string> notices = complete_weights(weights, config);
    EXPECT_EQ(notices.size(), scaled ? 1U : 0U);
    snapshot::write_tensors(Fs::real(), folder_ / "ours.pt", weights);
    return peer({"load", (folder_ / "ours.pt").string(), (folder_ / "out.safetensors").string(),
                 (folder_ / "back.safetensors").string(), "2", "4"},
                folder_ / "said.txt");
  };
  ASSERT_EQ(send(false), 0);
  const at::Tensor theirs = snapshot::read_tensors(folder_ / "back.safetensors").at("logits");
  EXPECT_LT(relative(theirs), 1e-5);
  EXPECT_NE(send(true), 0);
  EXPECT_THAT(Fs::real().read_file(folder_ / "said.txt"), HasSubstr("Missing key(s) in state_dict: \"position_embeddings.pe\""));
}

}  // namespace
}  // namespace millrace::recipes::language_model
