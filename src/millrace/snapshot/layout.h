// Names inside a snapshot: its parts, which also become names of files. Whoever writes or reads a part names it by these.
#pragma once

#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {

inline constexpr const char* kOptimizer = "optimizer";  // moments and steps of the optimisers
inline constexpr const char* kAverage = "average";      // averaged weights, where the run averages
inline constexpr const char* kLoader = "loader";        // where in the order of its samples the run is, and of which data
inline constexpr const char* kRecipe = "recipe";        // what the recipe keeps itself
inline constexpr const char* kTrainer = "trainer";      // step, epoch, scores, and what trials chose
inline constexpr const char* kFrozen = "frozen";        // which weights are a file's, and were not saved

// The part of that name; null when the snapshot has none. It lives as long as `content`.
[[nodiscard]] inline const State* part_of(const Content& content, const char* name) {
  const auto found = content.parts.find(name);
  return found == content.parts.end() ? nullptr : &found->second;
}

}  // namespace millrace::snapshot
