// The shipped recipes in a size that trains in no time.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "millrace/base/philox.h"
#include "millrace/recipes/neural_response/make_data.h"
#include "millrace/recipes/registry.h"
#include "toys.h"

namespace millrace::small_runs {

// Layouts are given: two runs that are compared must not choose by the clock. Small enough for hundreds of runs: five batches an
// epoch, accumulated by two, so three steps of which the last is partial.
inline Json small_config(const std::string& recipe) {
  if (recipe == "cosmology") {
    return {{"recipe.ra_keep", 32}, {"recipe.split", 2},           {"recipe.n_fg", 2},
            {"recipe.filters", 2},  {"recipe.num_train", 5},       {"recipe.ra_shift", true},
            {"data.batch_size", 2}, {"recipe.pca_num_samples", 2}, {"device.layout", "contiguous"}};
  }
  if (recipe == "neural_response") {
    const Json stages = {{{"channels", 4}, {"stride", 2}},
                         {{"channels", 6},
                          {"dropout", 0.2},
                          {"pool_stride", 1},
                          {"squeeze", 2},
                          {"kernel_size", {2, 3, 3}},
                          {"padding", {1, 1, 1}}}};
    return {{"recipe.adapter.grid_size", 9},     {"recipe.frontend.kernel_size", 3},
            {"recipe.frontend.num_channels", 2}, {"recipe.convnet.stages", stages},
            {"recipe.modulator.hidden_dim", 4},  {"recipe.modulator.beh_emb_dim", 2},
            {"recipe.steps_per_epoch", 5},       {"data.batch_size", 6},
            {"device.layout", "contiguous"},     {"recipe.enable_curriculum", true}};
  }
  return {{"recipe.model_embd", 16}, {"recipe.model_layer", 1},     {"recipe.model_head", 2}, {"recipe.model_positions", 16},
          {"recipe.seq_len", 16},    {"recipe.model_dropout", 0.2}, {"data.batch_size", 4}};
}

inline const Entry& entry_of(const std::string& name) {
  for (const Entry& entry : recipes::all()) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range(name);
}

// Made once for the process.
inline const std::filesystem::path& data_of(const std::string& recipe) {
  static std::map<std::string, toys::TemporaryFolder> folders;
  const bool is_new = !folders.contains(recipe);
  const std::filesystem::path& folder = folders[recipe].path();
  if (!is_new) return folder;
  if (recipe == "language_model") {
    Philox random(make_key(5));
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 360; ++i) text << static_cast<char>('a' + random.below(9));
  } else if (recipe == "neural_response") {
    recipes::neural_response::write_sample_sessions({.sessions = 2, .units = 4, .bins = 1200, .side = 11, .lags = 6}, folder, 0);
  } else {
    entry_of(recipe).make_data("smoke", folder, 0);
  }
  return folder;
}

}  // namespace millrace::small_runs
