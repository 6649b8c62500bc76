// Weights of other runs and programs, for models that begin with them.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/train/assembly/weights.h"

namespace millrace::recipes {

// As load_weights(), of the real file system and without a word on the console.
[[nodiscard]] Weights quiet_weights(const std::filesystem::path& from);
// All tensors among them; of two models that name one the last one's.
[[nodiscard]] Tensors tensors_of(const Weights& weights);
// "[2,3,4]"
[[nodiscard]] std::string shape_text(const at::Tensor& tensor);

}  // namespace millrace::recipes
