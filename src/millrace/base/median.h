// The middle value of a list.
#pragma once

#include <vector>

namespace millrace {

// The upper of the two middle values if their number is even; 0 if there are no values.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace millrace
