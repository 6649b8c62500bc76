// Names of a snapshot's parts. The names also become names of files. All code that writes or reads a part uses these names.
#pragma once

#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {

inline constexpr const char* kOptimizer = "optimizer";  // the optimisers' moments and step counts
inline constexpr const char* kAverage = "average";      // averaged weights, if the run averages weights
// The run's position in the order of its samples, and the identity of the data.
inline constexpr const char* kLoader = "loader";
inline constexpr const char* kRecipe = "recipe";    // the recipe's own state
inline constexpr const char* kTrainer = "trainer";  // step, epoch, scores, and the results of trials
inline constexpr const char* kFrozen = "frozen";    // names of the frozen weights, which come from a file and were not saved

// Finds the part called `name`; null if the snapshot does not have it. The result is valid until `content` is destroyed.
[[nodiscard]] inline const State* part_of(const Content& content, const char* name) {
  const auto found = content.parts.find(name);
  return found == content.parts.end() ? nullptr : &found->second;
}

}  // namespace millrace::snapshot
