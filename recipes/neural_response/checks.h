// Checks that refuse faulty input before a step is made with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/core/batch.h"
#include "millrace/train/recipe/config.h"
#include "recipes/neural_response/model.h"

namespace millrace::recipes::neural_response {

// The facts about a session that reports and snapshots contain. These facts are known even without the session's files.
struct Known {
  SessionShape shape;
  std::vector<std::int64_t> cids;
};

// Finds values of the recipe's keys that contradict each other.
[[nodiscard]] std::vector<Problem> problems_of(const RecipeConfig& recipe, const RunConfig& run);
// Throws DataError unless the data has the snapshot's sessions, with the same units, in the same order.
void check_sessions(const std::vector<Known>& saved, const std::vector<Known>& found);
// Throws DataError unless `inputs` are those of predict(): "stim" (rows, 1, lags, H, W), "behavior" (rows, behavior_dim).
void check_inputs(const Tensors& inputs, const ModelConfig& config);
// Copies adapters, frontend and convnet from `weights` into the model; returns the number of tensors. `saved`: the recipe's
// state that belongs to the weights. The sessions in `saved` say which adapter belongs to which session; without sessions,
// adapters are taken by their numbers. An adapter stays unchanged if `weights` lacks its session. Throws SnapshotError if a
// tensor of frontend or convnet is missing or has another shape.
std::int64_t take_pretrained(DigitalTwin& model, const Tensors& weights, const Json& saved, const std::string& from);

}  // namespace millrace::recipes::neural_response
