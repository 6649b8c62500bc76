// What two runs are compared by, out of their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

struct Setting {
  std::string value, origin;  // origin: of a config key; the reason of what was chosen
  bool operator==(const Setting&) const = default;
};

// A value that was logged. NaN where it was not finite.
struct Moment {
  double step = 0;
  double seconds = 0;  // for which the run's processes had run until then, one after the other
  double value = 0;
  std::int64_t version = 1;  // see metrics::MetricVersion
};

struct RunFacts {
  std::string folder, recipe, preset, state;
  std::map<std::string, Setting> config;   // by dotted key
  std::map<std::string, Setting> plan;     // what was chosen, without what tells of the machine
  std::map<std::string, Setting> machine;  // device and versions
  std::string data;                        // fingerprint in the newest snapshot; "" = not known
  // Of the last process.
  std::map<std::string, double> accounts;  // seconds; empty: an older run
  double steps = 0;
  double samples_per_step = 0;  // of the whole run; 0 = not known
  std::optional<double> step_ms;
  std::optional<double> others;                        // part of the time in which other programs had the cores
  std::map<std::string, double> memory;                // bytes of each account of the peak
  std::map<std::string, std::vector<Moment>> quality;  // losses and metrics, rising in step
  Json findings;                                       // an array; null: nobody looked
};

// `config`: the content of config.json. `data`: a fingerprint. Both as far as they are known; any JSON.
[[nodiscard]] RunFacts facts_of(const RunStory& story, const Json& config, const std::string& data);
// UsageError when the folder is none, or no run's. Files that are missing or damaged leave their part empty.
[[nodiscard]] RunFacts read_facts(const std::filesystem::path& folder);

}  // namespace millrace::runs
