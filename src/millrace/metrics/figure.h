// Values of metrics for people.
#pragma once

#include <string>
#include <string_view>

namespace millrace::metrics {

// "3" for counts of Board::add_bits_per_event ("<overall>/units" and related names), otherwise figure(): "0.05230".
[[nodiscard]] std::string figure_of(std::string_view metric, double value);

}  // namespace millrace::metrics
