// Weights of other runs and programs, for models that start from them.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/train/assembly/weights.h"

namespace millrace::recipes {

// load_weights() on the real file system, without output on the console.
[[nodiscard]] Weights quiet_weights(const std::filesystem::path& from);
// All tensors of `weights`; if two models name the same tensor, the last one's is returned.
[[nodiscard]] Tensors tensors_of(const Weights& weights);
// "[2,3,4]"
[[nodiscard]] std::string shape_text(const at::Tensor& tensor);

}  // namespace millrace::recipes
