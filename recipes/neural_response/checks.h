// What is refused before it costs a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/train/recipe/config.h"
#include "recipes/neural_response/model.h"

namespace millrace::recipes::neural_response {

// A session as reports and snapshots know it, also without its files.
struct Known {
  SessionShape shape;
  std::vector<std::int64_t> cids;
};

// Values of the recipe's keys that do not fit each other.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe, const RunConfig& run);
// DataError unless the data have the sessions of the snapshot, with its units, in its order.
void check_sessions(const std::vector<Known>& saved, const std::vector<Known>& found);
// DataError unless `inputs` are what predict() takes: "stim" (rows, 1, lags, H, W), "behavior" (rows, behavior_dim).
void check_inputs(const Tensors& inputs, const ModelConfig& config);
// Copies adapters, frontend and convnet of `weights` into the model; returns how many tensors. SnapshotError when one of frontend
// or convnet is missing there, or of another shape. Adapters of sessions that `weights` has not stay as they are.
std::int64_t take_pretrained(DigitalTwin& model, const Tensors& weights, const std::string& from);

}  // namespace millrace::recipes::neural_response
