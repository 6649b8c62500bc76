// What a step would hold if it were made lighter, worked out from what it holds: the state of the model and its optimiser stays,
// what is held for samples goes with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/train/recipe/recipe.h"

namespace millrace {

struct SmallerStep {
  std::string setting;      // "data.batch_size=2"
  std::uint64_t bytes = 0;  // of tensors, at most
};

// A step of `rows` samples at a time that holds `peak` bytes at most, `fixed` of them whatever the samples: half the samples, if
// there are two, and each way of the recipe's.
[[nodiscard]] std::vector<SmallerStep> smaller_steps(std::uint64_t fixed, std::uint64_t peak, std::int64_t rows,
                                                     const std::vector<Shrink>& ways);

// "data.batch_size=2 610 MB, recipe.seq_len=256 640 MB"
[[nodiscard]] std::string to_text(const std::vector<SmallerStep>& steps);

}  // namespace millrace
