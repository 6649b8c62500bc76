#include "millrace/recipes/language_model/presets.h"

#include <filesystem>
#include <sstream>

#include "millrace/train/recipe/foreign_options.h"

namespace millrace::recipes::language_model {
namespace {

struct Size {
  int width, layers, heads, positions;
};

Json shape(Size size, std::int64_t seq_len, double dropout = 0.1) {
  return {{"recipe.model_embd", size.width},          {"recipe.model_layer", size.layers}, {"recipe.model_head", size.heads},
          {"recipe.model_positions", size.positions}, {"recipe.seq_len", seq_len},         {"recipe.model_dropout", dropout}};
}

Json training(std::int64_t batch_size, double learning_rate, std::int64_t max_steps) {
  Json json = {{"data.batch_size", batch_size}, {"optim.learning_rate", learning_rate}};
  if (max_steps > 0) {
    json.update({{"train.max_steps", max_steps},
                 {"train.epochs", 0},
                 {"train.validate_every", max_steps / 4},
                 {"snapshot.every_steps", max_steps / 8}});
  }
  return json;
}

Json join(Json a, const Json& b) {
  a.update(b);
  return a;
}

Json own_text(const std::string& preset) { return {{"recipe.val_fraction", sample_text_of(preset)->validation_share()}}; }

// The small repository whose published validation loss this size is compared with: short context, no dropout, warm-up and cosine.
// It learns its positions from the size of its embeddings on; sines scaled to that size (.7 * .03 = .02) do the same without
// weights.
Json nano() {
  Json json = join(shape({128, 4, 4, 64}, 65, 0.0), training(12, 1e-3, 2000));
  json.update({{"recipe.tokenizer", "bytes"},
               {"recipe.embedding_scale", false},
               {"recipe.position_scale", 0.08},
               {"recipe.overlap", 64},
               {"optim.schedule", "warmup_cosine"},
               {"optim.warmup_steps", 100},
               {"optim.min_learning_rate", 1e-4},
               {"optim.betas", {0.9, 0.99}},
               {"optim.weight_decay", 0.1},
               {"optim.decay_only_matrices", true}});
  return json;
}

config::Alias plain(std::string name, std::string path) {
  return {std::move(name), std::move(path), nullptr, "as in the original's TOML"};
}

// What the original wrote as an empty string or null is "not given" here.
Json given(const Json& value) { return value.is_string() && value.get<std::string>().empty() ? Json() : value; }

Json stem(const Json& value) {
  return value.is_string() ? Json(std::filesystem::path(value.get<std::string>()).stem().string()) : value;
}

// One text, or several with commas between them, as a list.
Json list_of(const Json& value) {
  if (!value.is_string()) return value;
  Json list = Json::array();
  std::istringstream words(value.get<std::string>());
  for (std::string word; std::getline(words, word, ',');) list.push_back(word);
  return list;
}

}  // namespace

Json defaults() {
  return {{"data.batch_size", 4},
          {"optim.learning_rate", 1e-4},
          {"optim.clip_norm", 1.0},
          {"snapshot.every_epochs", 5},
          {"log.every", 100}};
}

std::optional<SampleText> sample_text_of(const std::string& preset) {
  if (preset == "smoke") return SampleText{1, 200'000, 20'000};
  if (preset == "smoke_order2") return SampleText{2, 200'000, 20'000};
  if (preset == "small") return SampleText{1, 2'000'000, 100'000};
  if (preset == "full") return SampleText{1, 50'000'000, 1'000'000};
  return std::nullopt;
}

std::vector<std::pair<std::string, Json>> presets() {
  const Json smoke = join(shape({64, 2, 2, 64}, 64), training(32, 1e-3, 400));
  return {
      {"smoke", join(smoke, own_text("smoke"))},
      {"smoke_order2", join(smoke, own_text("smoke_order2"))},
      {"small", join(join(shape({128, 4, 4, 128}, 128), training(16, 1e-3, 800)), own_text("small"))},
      {"full", join(join(shape({768, 12, 12, 1024}, 1024), training(12, 3e-4, 0)), own_text("full"))},
      {"nano", nano()},
      {"test", join(shape({128, 2, 4, 128}, 128), training(16, 1e-3, 300))},
      {"small_model", join(shape({384, 6, 6, 512}, 512), training(12, 5e-4, 0))},
      {"large_model", join(shape({1024, 24, 16, 2048}, 1024), training(4, 1e-4, 0))},
      {"bigwill", join(shape({1536, 6, 12, 512}, 512), training(4, 1e-4, 0))},
  };
}

std::vector<config::Alias> aliases() {
  std::vector<config::Alias> list;
  for (const char* key :
       {"seq_len", "model_positions", "model_embd", "model_layer", "model_head", "model_activation", "model_dropout",
        "embd_pdrop", "attn_pdrop", "resid_pdrop", "val_fraction", "tokenizer", "vocab_from"}) {
    list.push_back(plain(key, std::string("recipe.") + key));
  }
  for (const char* key : {"max_length", "temperature", "top_k", "top_p", "beam_size", "max_context_length", "prompt"}) {
    list.push_back(plain(key, std::string("generate.") + key));
  }
  list.push_back({"sources", "recipe.sources", list_of, "one text, or several with commas between them"});
  list.push_back({"corpus_path", "recipe.sources", list_of, "what the original's first files call sources"});
  list.push_back({"model_seed", "generate.prompt", given, "the original's name of the text to continue"});
  list.push_back(accepted_text("model_name", "model_path names the run"));
  list.push_back({"model_path", "run.name", stem, "its stem names the run; millrace export writes the weights to a file"});
  list.push_back({"device", "device.name", given, "as in the original's TOML"});
  list.push_back({"resume", "train.resume", given, "path of a run or snapshot; empty or null: not given"});
  list.push_back({"resume_path", "train.resume", given, "as in the original's train_model"});
  list.push_back(accepted_word("start_epoch", "a resumed run knows its epoch"));
  return list;
}

}  // namespace millrace::recipes::language_model
