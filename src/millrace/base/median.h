// The middle value of a list.
#pragma once

#include <vector>

namespace millrace {

// Of an even number of values the upper one of the two in the middle; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace millrace
