#include "recipes/language_model/entry_parts.h"

namespace millrace::recipes::language_model {

Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file) {
  if (!tree.is_object()) return tree;
  for (const char* key : {"geometric_ratio", "anchor_ratio", "sigmoid_scale_start", "seq_len_start"}) {
    if (!tree.contains(key)) continue;
    file.problems.push_back(
        {"the file is for the original's later model (tiktoken words, a loss of the angles between them), which Millrace does "
         "not have; the model here is the character model of its optimisation guide, August 2025",
         key, "give a file of that model, or describe it by recipe.model_embd, recipe.model_layer, recipe.seq_len"});
    return Json::object();
  }
  if (!tree.contains("sources") || !tree.contains("corpus_path")) return tree;
  Json keys = tree;
  keys.erase("corpus_path");
  file.notices.emplace_back("corpus_path is not used: it is an older name of sources, which the same file has");
  return keys;
}

}  // namespace millrace::recipes::language_model
