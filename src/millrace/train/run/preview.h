// The batches of a run as its network gets them, without the run: for `millrace show`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "millrace/core/batch.h"
#include "millrace/data/loader/source.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/run/run.h"

namespace millrace {

// What a recipe tells of itself, with what the sources of its data sets say of their files where it says nothing: each text once.
[[nodiscard]] Facts facts_of(const Recipe& recipe, std::span<const data::Dataset> datasets);

struct Preview {
  Split split = Split::train;
  std::int64_t batches = 1;  // at most; fewer where the epoch ends before
  // A run or a snapshot of it: with its recipe's state, and the training batches that come next. "" = none.
  std::filesystem::path from;
};

// A batch after the loader and Recipe::prepare, whole and on the run's device, and the data sets of the split: group g is of
// datasets[g]. `facts`: those of facts_of().
using BatchVisitor = std::function<void(const Batch& batch, std::span<const data::Dataset> datasets, const Facts& facts)>;

// Hands the batches on that a run of `request` would begin with, or go on with: the same samples, augmented with the same
// numbers. Nothing is trained and nothing is written; one batch is in memory at a time. ConfigError when the split has no data.
void preview_batches(RunRequest request, const Preview& preview, const BatchVisitor& sees);

// "sample 17 (data/a.h5, row 3)" of a batch's row; "row 4" for a batch that no loader made.
[[nodiscard]] std::string name_of_row(const Group& group, const data::Dataset* dataset, std::int64_t row);

}  // namespace millrace
