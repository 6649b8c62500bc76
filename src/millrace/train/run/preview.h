// Shows the batches of a run as its network gets them, without training: for `millrace show`.
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

// The recipe's facts. If the recipe does not say how it reads its files, `read_as` gets the descriptions of the data sets'
// sources, without repeats. A field whose values the recipe does not name gets the names that its source gives.
[[nodiscard]] Facts facts_of(const Recipe& recipe, std::span<const data::Dataset> datasets);

struct Preview {
  Split split = Split::train;
  std::int64_t batches = 1;  // the most batches to show; fewer if the epoch ends earlier
  // A run or one of its snapshots, which supplies the recipe's state and the position in the data. "" = a new run.
  std::filesystem::path from;
};

// Called with a complete batch after the loader and Recipe::prepare, on the run's device, and with the data sets of the split:
// datasets[g] is the source of group g. `facts`: the result of facts_of().
using BatchVisitor = std::function<void(const Batch& batch, std::span<const data::Dataset> datasets, const Facts& facts)>;

// Passes to `sees` the batches with which a run of `request` would begin or continue: the same samples, augmented with the same
// random numbers. Trains nothing, writes nothing, and holds one batch in memory at a time. Throws ConfigError if the split has no
// data.
void preview_batches(RunRequest request, const Preview& preview, const BatchVisitor& sees);

// The name of a row of a batch: "sample 17 (data/a.h5, row 3)"; "row 4" if the batch does not come from a loader.
[[nodiscard]] std::string name_of_row(const Group& group, const data::Dataset* dataset, std::int64_t row);

}  // namespace millrace
