// Predicts the memory of smaller steps from the memory of the present step. The state of model and optimiser stays the same; the
// memory for samples shrinks with their number or size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

struct SmallerStep {
  std::string setting;      // the change of the config: "data.batch_size=2"
  std::uint64_t bytes = 0;  // predicted peak of the tensors' bytes
};

// Returns a prediction for half of the samples, if there are at least two, and one for each Shrink that the recipe offers. The
// present step has `rows` samples and holds at most `peak` bytes; `fixed` of these bytes do not depend on samples.
[[nodiscard]] std::vector<SmallerStep> smaller_steps(std::uint64_t fixed, std::uint64_t peak, std::int64_t rows,
                                                     const std::vector<Shrink>& ways);

// The steps as a text: "data.batch_size=2 610 MB, recipe.seq_len=256 640 MB".
[[nodiscard]] std::string to_text(const std::vector<SmallerStep>& steps);

}  // namespace millrace
