// An axis described in words: where it begins and ends, its direction and its steps.
#pragma once

#include <span>
#include <string>

namespace millrace {

// Returns 1 if each value is larger than the one before, -1 if each value is smaller, and 0 if neither is true or there are
// fewer than two values. With a `period` (360 for degrees) values may wrap around, so 350, 10 counts as ascending.
[[nodiscard]] int direction_of(std::span<const double> values, double period = 0);

// Examples: "100 to 115 MHz ascending in steps of 1", "1 to 0.5 descending in steps of 0.1 to 0.2", "3 to 7 s in no order", "100
// MHz" for a single value, "" for no values. `unit` may be empty.
[[nodiscard]] std::string axis_text(std::span<const double> values, const std::string& unit, double period = 0);

}  // namespace millrace
