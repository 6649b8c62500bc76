#include "recipes/image_pairs/entry_parts.h"

namespace millrace::recipes::image_pairs {

std::vector<config::Alias> aliases() {
  return {{"data_dir", "data.dir", nullptr, "the original's flag"},
          {"output_dir", "run.parent", nullptr, "the original's flag: folder of the run folders"},
          {"clean", "recipe.photographs", nullptr, "as in make-data"},
          {"baseline", "recipe.baseline", nullptr, "eval --baseline: for comparison with the network"},
          {"samples", "recipe.val_samples", nullptr, "the original's flag of eval: pairs; 0 = all"}};
}

}  // namespace millrace::recipes::image_pairs
