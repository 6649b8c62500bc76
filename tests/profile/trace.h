// A trace as a test reads it: plain events, and which event lies within which.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::test {

struct TraceEvent {
  std::string category, name, shapes;
  std::int64_t thread = 0;
  double begin = 0, took = 0;  // microseconds

  // Allows a nanosecond of rounding on either side.
  [[nodiscard]] bool holds(const TraceEvent& other) const {
    constexpr double kRounding = 0.002;
    return thread == other.thread && begin <= other.begin + kRounding && other.begin + other.took <= begin + took + kRounding;
  }
};

inline std::vector<TraceEvent> read_trace(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const Json json = Json::parse(stream);
  std::vector<TraceEvent> events;
  for (const Json& each : json.at("traceEvents")) {
    if (each.at("ph") != "X" || !each.at("tid").is_number()) continue;
    TraceEvent event{.category = each.at("cat"), .name = each.at("name"), .shapes = "", .thread = each.at("tid")};
    event.begin = each.at("ts");
    event.took = each.at("dur");
    if (each.contains("args") && each["args"].contains("Input Dims")) event.shapes = each["args"]["Input Dims"].dump();
    events.push_back(std::move(event));
  }
  return events;
}

inline std::vector<TraceEvent> named(const std::vector<TraceEvent>& events, const std::string& beginning) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& event : events) {
    if (event.name.starts_with(beginning)) found.push_back(event);
  }
  return found;
}

inline bool any_holds(const std::vector<TraceEvent>& outer, const TraceEvent& inner) {
  for (const TraceEvent& event : outer) {
    if (event.holds(inner)) return true;
  }
  return false;
}

}  // namespace millrace::test
