// Composes presets from sets of values.
#pragma once

#include <vector>

#include "millrace/base/json.h"

namespace millrace::recipes {

// The values of all `parts` together. If several parts set the same key, the last of them counts.
[[nodiscard]] inline Json join(const std::vector<Json>& parts) {
  Json all = Json::object();
  for (const Json& part : parts) all.update(part);
  return all;
}
[[nodiscard]] inline Json join(Json values, const Json& more) {
  values.update(more);
  return values;
}

}  // namespace millrace::recipes
