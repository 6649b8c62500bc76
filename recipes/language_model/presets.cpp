#include "recipes/language_model/entry_parts.h"

#include "recipes/common/presets.h"
#include "recipes/language_model/make_data.h"

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

Json own_text(const std::string& preset) { return {{"recipe.val_fraction", sample_text_of(preset)->validation_share()}}; }

// Sizes and settings of a small network whose validation loss others publish, for comparison: short context, no dropout, warm-up
// and cosine. The published network learns its positions; here sines replace them. The sines are scaled down, because sines of
// full size drown embeddings that are not scaled up.
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

}  // namespace millrace::recipes::language_model
