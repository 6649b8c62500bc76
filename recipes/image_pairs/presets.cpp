#include "recipes/image_pairs/entry_parts.h"

#include "recipes/common/presets.h"
#include "recipes/image_pairs/prompt.h"

namespace millrace::recipes::image_pairs {
namespace {

// Settings that make noise visible to the tower. Noise is a small part of a photograph's patch, so the filters amplify what is
// rare in photographs. The tower's first norm divides by the size of the patch together with its position embedding. Large
// position embeddings keep that divisor nearly constant, so the norm does not remove the size of a patch's values.
Json whitened() { return {{"recipe.patch_init", "whitened"}, {"recipe.position_std", 0.5}}; }

Json smoke() {
  return join(join(network({32, 8, 64, 2, 4, 256, -1}, {64, 2, 4, 176, ByteTokens::kSize}), whitened()),
              {{"recipe.question", "Cleaner?"},
               {"recipe.per_class", 1000},
               {"recipe.consistency_steps", 400},
               {"recipe.val_samples", 512},
               {"optim.learning_rate", 1e-3},
               {"train.epochs", 0},
               {"train.max_steps", 300},
               {"train.validate_every", 100},
               {"log.every", 20},
               {"snapshot.every_steps", 100}});
}

// The weight of the consistency loss begins at 0, because a network of this depth learns nothing as long as inconsistent answers
// cost more than wrong ones.
Json small() {
  return join(join(network({64, 8, 192, 4, 6, 768, -1}, {256, 4, 8, 688, ByteTokens::kSize}), whitened()),
              {{"recipe.question", "Cleaner?"},
               {"recipe.per_class", 5000},
               {"recipe.val_samples", 4000},
               {"recipe.consistency_start", 0},
               {"recipe.consistency_end", 2},
               {"data.batch_size", 16},
               {"optim.learning_rate", 5e-4},
               {"train.epochs", 0},
               {"train.max_steps", 600},
               {"train.validate_every", 300},
               {"log.every", 20},
               {"snapshot.every_steps", 100}});
}

// The published sizes of LLaVA-1.5-7B, and the targets in the guide of LMOL, the program that this recipe follows.
Json full() {
  return join(network({336, 14, 1024, 24, 16, 4096, -2}, {4096, 32, 32, 11008, 32064}),
              {{"targets.samples_per_s", 2}, {"targets.gpu_busy", 0.8}});
}

}  // namespace

Json network(const Tower& tower, const Decoder& decoder) {
  return {{"recipe.image_size", tower.image},
          {"recipe.patch_size", tower.patch},
          {"recipe.vision_width", tower.width},
          {"recipe.vision_layers", tower.layers},
          {"recipe.vision_heads", tower.heads},
          {"recipe.vision_hidden", tower.hidden},
          {"recipe.vision_feature_layer", tower.feature_layer},
          {"recipe.decoder_width", decoder.width},
          {"recipe.decoder_layers", decoder.layers},
          {"recipe.decoder_heads", decoder.heads},
          {"recipe.decoder_hidden", decoder.hidden},
          {"recipe.vocab_size", decoder.vocabulary}};
}

Json defaults() {
  return {{"data.batch_size", 32},
          {"data.drop_last", true},
          {"optim.learning_rate", 2e-4},
          {"optim.weight_decay", 0.1},
          {"optim.clip_norm", 1.0},
          {"optim.schedule", "cosine_floor"},
          {"optim.warmup_frac", 0.05},
          {"train.epochs", 3},
          {"train.seed", 42},
          {"train.early_stop_patience", 5},
          {"train.early_stop_delta", 1e-4},
          {"snapshot.frozen", "leave_out"},
          {"log.train_metrics", true},
          {"log.gpu_every", 100}};
}

std::vector<std::pair<std::string, Json>> presets() {
  return {{"smoke", smoke()},
          {"small", small()},
          {"full", full()},
          {"original", join(full(), {{"recipe.resize", "clip"}, {"data.workers", 16}, {"log.line", "original"}})}};
}

}  // namespace millrace::recipes::image_pairs
