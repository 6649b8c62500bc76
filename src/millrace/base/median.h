// The middle value of a list.
#pragma once

#include <vector>

namespace millrace {

// Returns the middle value; for an even number of values, the larger of the two middle ones. Returns 0 if there are no values.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace millrace
