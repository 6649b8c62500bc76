// Weights of other runs and programs, for models that begin with them.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/train/assembly/weights.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace::recipes {

// Returns true if there are weights to begin with: `path`, the value of the config key `key`, is not empty. If `in_snapshot` is
// true, a snapshot also has these weights; if the file `path` is then gone, the result is false, and a note says so.
[[nodiscard]] bool finds_weights(const Context& context, const std::string& key, const std::string& path, bool in_snapshot);
// Calls load_weights() on the real file system, without messages on the console.
[[nodiscard]] Weights quiet_weights(const std::filesystem::path& from);
// All tensors of `weights`. If two models have a tensor of the same name, the result has that of the last one.
[[nodiscard]] Tensors tensors_of(const Weights& weights);
// The shape as a text: "[2,3,4]".
[[nodiscard]] std::string shape_text(const at::Tensor& tensor);

}  // namespace millrace::recipes
