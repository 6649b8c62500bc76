#include "recipes/language_model/originals/weights.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <map>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/files/tokenizer.h"
#include "millrace/nn/functional.h"
#include "recipes/language_model/config.h"

namespace millrace::recipes::language_model {
namespace {

constexpr auto kPositions = "position_embeddings.pe";
constexpr auto kTokens = "token_embeddings.embedding.weight";
// a large tolerance, because angles of some thousand radians are in fp32, and powers are computed in another order
constexpr double kSameSinusoid = 1e-3;

// The config while a file of weights is read. Combines the file's values with keys that the user set.
class Decided {
 public:
  Decided(config::Resolved& config, std::string file) : config_(config), file_(std::move(file)) {}

  // True if a flag, a file or the environment sets the key. False if the key's value is that of a preset or a default.
  [[nodiscard]] bool is_set(const std::string& key) const {
    const auto origin = config_.origins.find("recipe." + key);
    if (origin == config_.origins.end()) return false;
    return origin->second.starts_with("flag") || origin->second.starts_with("file") || origin->second.starts_with("environment");
  }
  [[nodiscard]] const Json& value(const std::string& key) const { return config_.values.at("recipe").at(key); }
  void set(const std::string& key, const Json& value, const std::string& why) {
    Json& now = config_.values.at("recipe").at(key);
    if (now == value) return;
    if (is_set(key)) {
      throw ConfigError(Message{"the weights in " + file_ + " need recipe." + key + "=" + value.dump() + " (" + why +
                                    "), but the key is set to " + now.dump(),
                                config_.origins.at("recipe." + key), "remove the key, because the file determines it"});
    }
    now = value;
    config_.origins["recipe." + key] = "weights " + file_;
  }

 private:
  config::Resolved& config_;
  std::string file_;
};

const at::Tensor* find(const Tensors& tensors, const std::string& name, std::int64_t dimensions) {
  const auto found = tensors.find(name);
  return found != tensors.end() && found->second.dim() == dimensions ? &found->second : nullptr;
}

std::optional<std::int64_t> whole_number(const Json& values, const std::string& name) {
  const auto found = values.find(name);
  return found != values.end() && found->is_number_integer() ? std::optional(found->get<std::int64_t>()) : std::nullopt;
}

void take_sizes(const Weights& file, const Tensors& tensors, Decided& config) {
  const at::Tensor* tokens = find(tensors, kTokens, 2);
  if (tokens == nullptr) {
    throw DataError({file.path.string() + " has no matrix " + kTokens + ", so it does not belong to this model",
                     tensors.empty() ? "it holds no tensor" : "its first tensor is " + quoted(tensors.begin()->first),
                     "give weights of a language model; millrace inspect FILE lists what a file holds"});
  }
  const std::int64_t width = tokens->size(1);
  const bool same_width = config.value("model_embd") == width;
  config.set("model_embd", width, "the width of its embedding");
  config.set("vocab_size", tokens->size(0), "the rows of its embedding");
  std::int64_t layers = 0;
  while (tensors.contains("transformer_blocks." + std::to_string(layers) + ".ln1.weight")) ++layers;
  if (layers > 0) config.set("model_layer", layers, "its blocks");
  const bool has_projection = tensors.contains("output_projection.weight");
  config.set("tied", !has_projection, has_projection ? "it has an output projection" : "it has no output projection");
  if (find(tensors, "position_embeddings.embedding.weight", 2) != nullptr)
    config.set("positions", "learned", "it has a table of positions");
  if (const auto heads = whole_number(file.values, "config.n_head")) {
    config.set("model_head", *heads, "config.n_head of the checkpoint");
  } else if (!same_width && !config.is_set("model_head")) {
    throw ConfigError(Message{"the weights of " + file.path.string() + " do not say how many heads their model has",
                              "recipe.model_head", "give --recipe.model_head=N, or the config that the model was trained with"});
  }
}

// Compares AGI2's buffer of sinusoids with the sinusoids that the model computes, and removes the buffer from `tensors`. Returns
// true if `tensors` had the buffer.
bool take_positions(const Weights& file, Tensors& tensors, Decided& config) {
  const auto found = tensors.find(kPositions);
  if (found == tensors.end()) return false;
  const at::Tensor& buffer = found->second;
  const std::int64_t width = config.value("model_embd").get<std::int64_t>();
  const bool fits = buffer.dim() == 2 && buffer.size(1) == width && buffer.size(0) > 0 && buffer.is_floating_point();
  if (!fits ||
      !((buffer.to(at::kFloat) - nn::sinusoidal_positions(buffer.size(0), width)).abs().max().item<double>() < kSameSinusoid)) {
    throw DataError({std::string(kPositions) + " of " + file.path.string() + " is not the table of sinusoids of this model",
                     file.path.string(), "for other positions, train a model with recipe.positions=learned"});
  }
  config.set("positions", "sinusoidal", kPositions);
  config.set("model_positions", buffer.size(0), std::string("the rows of ") + kPositions);
  // the longest sequence; one longer than the buffer, because the last token of a sequence is only a target
  const std::int64_t longest = buffer.size(0) + 1;
  if (!config.is_set("seq_len") && config.value("seq_len") > longest) config.set("seq_len", longest, "as many positions");
  tensors.erase(found);
  return true;
}

std::optional<bool> scale_in_metadata(const Json& values) {
  const auto text = values.find("config");
  if (text == values.end() || !text->is_string()) return std::nullopt;
  const Json config = Json::parse(text->get<std::string>(), nullptr, /*allow_exceptions=*/false);
  const Json::json_pointer key("/recipe/embedding_scale");
  if (!config.is_object() || !config.contains(key) || !config.at(key).is_boolean()) return std::nullopt;
  return config.at(key).get<bool>();
}

std::string take_scale(const Weights& file, bool has_positions, Decided& config) {
  if (has_positions) {
    config.set("embedding_scale", false, std::string(kPositions) + " comes from a model that does not scale its embeddings");
    return std::string(kPositions) +
           " comes from the original, so recipe.embedding_scale is false, and positions are computed instead of read";
  }
  if (const auto scale = scale_in_metadata(file.values)) {
    config.set("embedding_scale", *scale, "the file's own metadata");
    return "";
  }
  if (config.is_set("embedding_scale") || config.value("positions") == "learned") return "";
  return "the file does not say whether its embeddings are scaled, so recipe.embedding_scale stays " +
         config.value("embedding_scale").dump() +
         "; for a file of the original, which does not scale them, give --recipe.embedding_scale=false";
}

// Takes the checkpoint's tokenizer if that tokenizer works like Millrace's: four special tokens, then lower-case characters in
// order.
std::string take_vocabulary(Weights& file) {
  constexpr std::string_view kBegin = "tokenizer.vocab.";
  std::map<std::int64_t, std::string> by_id;
  for (const auto& [name, value] : file.values.items())
    if (name.starts_with(kBegin) && value.is_number_integer()) by_id[value.get<std::int64_t>()] = name.substr(kBegin.size());
  if (by_id.empty()) return "";
  constexpr std::int64_t kSpecials = 4;
  std::string characters;
  std::int64_t next = 0;
  for (const auto& [id, text] : by_id) {
    if (id != next++) return "its vocabulary has no token " + std::to_string(next - 1) + ", and is left out";
    if (id >= kSpecials) characters += text;
  }
  const Json tokenizer = {{"kind", "basic"}, {"characters", characters}};
  try {
    const auto made = data::Tokenizer::from_json(tokenizer);
    if (made->vocab_size() != next) return "its vocabulary is not one of characters, and is ignored";
  } catch (const Error& error) {
    return "its vocabulary is left out: " + error.message().what;
  }
  file.recipe.json["tokenizer"] = tokenizer;
  return "the vocabulary of " + std::to_string(next) + " tokens is the checkpoint's";
}

}  // namespace

std::vector<std::string> adopt_weights(Weights& weights, config::Resolved& config) {
  Tensors& tensors = weights.models["model"];
  Decided decided(config, weights.path.string());
  take_sizes(weights, tensors, decided);
  const bool has_positions = take_positions(weights, tensors, decided);
  std::vector<std::string> notices = {take_scale(weights, has_positions, decided), take_vocabulary(weights)};
  std::erase(notices, "");
  return notices;
}

std::vector<std::string> complete_weights(Tensors& weights, const Json& config) {
  const RecipeConfig recipe = config::read<Sections>(config).recipe;
  const bool same_positions = recipe.positions == Positions::sinusoidal && recipe.position_scale == 1;
  if (same_positions && !recipe.embedding_scale) {
    weights.insert_or_assign(kPositions, nn::sinusoidal_positions(recipe.model_positions, recipe.model_embd));
    return {};
  }
  return {
      "the Python original can't load this file, because it computes with recipe.embedding_scale=false and sinusoidal positions"};
}

}  // namespace millrace::recipes::language_model
