// The batches of a run as its network gets them, without training: for `millrace show`.
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

// A recipe's facts. If the recipe does not describe its files, `read_as` gets the descriptions by the data sets' sources, each
// text once.
[[nodiscard]] Facts facts_of(const Recipe& recipe, std::span<const data::Dataset> datasets);

struct Preview {
  Split split = Split::train;
  std::int64_t batches = 1;  // most batches; fewer if the epoch ends earlier
  // A run or a snapshot of it: supplies the recipe's state and the position in the data. "" = a new run.
  std::filesystem::path from;
};

// Gets a batch after the loader and Recipe::prepare, whole and on the run's device, and the data sets of the split: group g is
// from datasets[g]. `facts`: as facts_of() returns them.
using BatchVisitor = std::function<void(const Batch& batch, std::span<const data::Dataset> datasets, const Facts& facts)>;

// Passes to `sees` the batches with which a run of `request` would begin, or continue: the same samples, augmented with the same
// numbers. Nothing is trained and nothing is written; one batch is in memory at a time. ConfigError if the split has no data.
void preview_batches(RunRequest request, const Preview& preview, const BatchVisitor& sees);

// The name of a batch's row: "sample 17 (data/a.h5, row 3)"; "row 4" for a batch that no loader made.
[[nodiscard]] std::string name_of_row(const Group& group, const data::Dataset* dataset, std::int64_t row);

}  // namespace millrace
