// Values of metrics for people.
#pragma once

#include <string>
#include <string_view>

namespace millrace::metrics {

// "3" of what Board::add_bits_per_event counts ("<overall>/units" and what stands beside it), else as figure(): "0.0523".
[[nodiscard]] std::string figure_of(std::string_view metric, double value);

}  // namespace millrace::metrics
