// An axis in words: where it begins and ends, which way it runs, and by what steps.
#pragma once

#include <span>
#include <string>

namespace millrace {

// -1: each value is below the one before; 1: above; 0: neither, or fewer than two values. With a `period` (360 of degrees) a
// value may be beyond its end: 350, 10 goes up.
[[nodiscard]] int direction_of(std::span<const double> values, double period = 0);

// "100 to 115 MHz ascending in steps of 1", "1 to 0.5 descending in steps of 0.1 to 0.2", "3 to 7 s in no order", "100 MHz" of a
// single value, "" of no value. `unit` may be empty.
[[nodiscard]] std::string axis_text(std::span<const double> values, const std::string& unit, double period = 0);

}  // namespace millrace
