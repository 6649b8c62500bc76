// Operations and filters under their names in dataset files.
#pragma once

#include <string>
#include <vector>

#include "recipes/neural_response/sessions/dataset_tree.h"
#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// A list of {NAME: arguments}; arguments are a map, or the value of the only argument. Unknown names and arguments are problems.
[[nodiscard]] std::vector<Operation> operations_of(const Node& list);
// Adds the filters of such a list.
void add_filters(const Node& list, Filters& filters);
// The reason why an operation can't make `field` (stim, robs or behavior); "" if it can.
[[nodiscard]] std::string why_not(const Operation& operation, const std::string& field);

}  // namespace millrace::recipes::neural_response
