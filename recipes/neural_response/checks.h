// Checks that refuse faulty input before it costs a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/train/recipe/config.h"
#include "recipes/neural_response/model.h"

namespace millrace::recipes::neural_response {

// A session's description in reports and snapshots, also without its files.
struct Known {
  SessionShape shape;
  std::vector<std::int64_t> cids;
};

// Contradictions between values of the recipe's keys.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe, const RunConfig& run);
// DataError unless the data have the snapshot's sessions, with the same units, in the same order.
void check_sessions(const std::vector<Known>& saved, const std::vector<Known>& found);
// DataError unless `inputs` fit predict(): "stim" (rows, 1, lags, H, W), "behavior" (rows, behavior_dim).
void check_inputs(const Tensors& inputs, const ModelConfig& config);
// Copies adapters, frontend and convnet of `weights` into the model; returns the number of tensors. Adapters of sessions that
// `weights` lacks stay unchanged. SnapshotError if a tensor of frontend or convnet is missing or has another shape.
std::int64_t take_pretrained(DigitalTwin& model, const Tensors& weights, const std::string& from);

}  // namespace millrace::recipes::neural_response
