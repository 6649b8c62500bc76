#include "recipes/cosmology/entry_parts.h"

#include "recipes/common/presets.h"
#include "recipes/cosmology/make_data.h"

namespace millrace::recipes::cosmology {
namespace {

Json sky(std::int64_t ra_keep, std::int64_t split, std::int64_t n_fg, std::int64_t filters) {
  return {{"recipe.ra_keep", ra_keep}, {"recipe.split", split}, {"recipe.n_fg", n_fg}, {"recipe.filters", filters}};
}

Json steps(std::int64_t batch_size, double learning_rate, std::int64_t max_steps, std::int64_t validate_every) {
  return {{"data.batch_size", batch_size},          {"optim.learning_rate", learning_rate},
          {"train.max_steps", max_steps},           {"train.epochs", 0},
          {"train.validate_every", validate_every}, {"snapshot.every_epochs", 0},
          {"snapshot.every_steps", validate_every}};
}

}  // namespace

Json defaults() {
  return {{"data.batch_size", 4},      {"optim.name", "adam"},    {"optim.learning_rate", 1e-4},
          {"optim.weight_decay", 0.0}, {"optim.clip_value", 1.0}, {"train.epochs", 100},
          {"train.seed", 42},          {"log.every", 50},         {"optim.warmup_frac", 0.05}};
}

std::optional<SkySize> sample_sky_of(const std::string& preset) {
  if (preset == "smoke") return SkySize{8, 32, 64, 3, 54};
  if (preset == "small") return SkySize{16, 64, 256, 6, 54};
  if (preset == "full") return SkySize{48, 128, 2048, 10, 25};
  return std::nullopt;
}

std::vector<std::pair<std::string, Json>> presets() {
  return {{"smoke", join(sky(64, 2, 4, 4), steps(4, 1e-3, 240, 60))},
          {"small", join(sky(256, 2, 7, 8), steps(2, 5e-4, 300, 100))},
          {"full", {{"recipe.n_fg", 11}, {"targets.gpu_busy", 0.8}}}};
}

}  // namespace millrace::recipes::cosmology
