#include "recipes/cosmology/entry_parts.h"

namespace millrace::recipes::cosmology {
namespace {

bool has(const Json& tree, const char* section, const char* key) {
  return tree.contains(section) && tree[section].is_object() && tree[section].contains(key);
}

}  // namespace

Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file) {
  if (!tree.is_object()) return tree;
  Json keys = tree;
  for (const char* section : {"moment_2_params", "moment2_params"}) {
    if (keys.erase(section) > 0)
      file.notices.push_back(std::string(section) +
                             ": it belongs to the original's second-moment script, which Millrace does not have");
  }
  if (has(tree, "model_params", "model_version") && tree["model_params"]["model_version"] != "v1") {
    file.problems.push_back(
        {"the file is for the original's network " + tree["model_params"]["model_version"].dump() +
             " (residual blocks, chosen strides and padding), which Millrace does not have; the network here is v1",
         "model_params.model_version", "give a file of v1, or describe v1 by recipe.filters, recipe.act, recipe.loss"});
    return Json::object();
  }
  if (has(tree, "training_params", "train_num_workers"))
    keys["training_params"].erase("num_workers");  // if a file has num_workers and train_num_workers, hugh uses
                                                   // train_num_workers
  return keys;
}

}  // namespace millrace::recipes::cosmology
