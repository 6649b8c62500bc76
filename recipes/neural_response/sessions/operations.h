// Reads operations and filters by the names that dataset files use.
#pragma once

#include <string>
#include <vector>

#include "recipes/neural_response/sessions/dataset_tree.h"
#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// Reads a list of {NAME: arguments}, where arguments are a map, or the value of the only argument. Unknown names and arguments
// are problems.
[[nodiscard]] std::vector<Operation> operations_of(const Node& list);
// Reads a list of filters, in the form of operations_of(), and adds them to `filters`.
void add_filters(const Node& list, Filters& filters);
// Returns the reason why an operation can't make `field` (stim, robs or behavior); "" if it can.
[[nodiscard]] std::string why_not(const Operation& operation, const std::string& field);

}  // namespace millrace::recipes::neural_response
