// Predicts the memory of smaller steps from the memory of the present step: the model's and optimiser's state stays, and the
// memory for samples shrinks with their number or size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

struct SmallerStep {
  std::string setting;      // "data.batch_size=2"
  std::uint64_t bytes = 0;  // most bytes of tensors
};

// Predictions for a step of `rows` samples at a time that holds at most `peak` bytes, of which `fixed` do not depend on samples:
// with half the samples, if there are at least two, and with each Shrink of the recipe.
[[nodiscard]] std::vector<SmallerStep> smaller_steps(std::uint64_t fixed, std::uint64_t peak, std::int64_t rows,
                                                     const std::vector<Shrink>& ways);

// "data.batch_size=2 610 MB, recipe.seq_len=256 640 MB"
[[nodiscard]] std::string to_text(const std::vector<SmallerStep>& steps);

}  // namespace millrace
