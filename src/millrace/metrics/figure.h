// Formats values of metrics for people.
#pragma once

#include <string>
#include <string_view>

namespace millrace::metrics {

// Formats `value` as an integer ("3") for metrics that count units ("<overall>/units" and the related names of
// Board::add_bits_per_event), otherwise by figure() ("0.05230").
[[nodiscard]] std::string figure_of(std::string_view metric, double value);

}  // namespace millrace::metrics
