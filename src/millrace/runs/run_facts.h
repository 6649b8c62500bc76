// The facts by which two runs are compared, from their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/runs/run_story.h"

namespace millrace::runs {

struct RunFacts {
  struct Setting {
    std::string value, origin;  // origin of a config key, or reason of a choice
    bool operator==(const Setting&) const = default;
  };

  // A logged value. NaN if it was not finite.
  struct Moment {
    double step = 0;
    double seconds = 0;  // run time of the run's processes until then, in total
    double value = 0;
    std::int64_t version = 1;  // see metrics::Means::MetricVersion
  };

  std::string folder, recipe, preset, state;
  std::map<std::string, Setting> config;   // by dotted key
  std::map<std::string, Setting> plan;     // choices, without facts about the machine
  std::map<std::string, Setting> machine;  // device and versions
  std::string data;                        // fingerprint in the newest snapshot; "" = unknown
  // The members below are of the last process.
  std::map<std::string, double> accounts;  // seconds; empty: a run of an older version
  double steps = 0;
  double samples_per_step = 0;  // over the whole run; 0 = unknown
  std::optional<double> step_ms;
  std::vector<double> line_ms;                         // the median step of each log line after the first, which warms up
  std::optional<double> others;                        // share of the time in which other programs used the cores
  std::map<std::string, double> memory;                // bytes of each account of the peak
  std::map<std::string, std::vector<Moment>> quality;  // losses and metrics, rising in step
  Json findings;                                       // an array; null: not checked
};

// `config`: the content of config.json. `data`: a fingerprint. `config` may be any JSON, and both may be incomplete.
[[nodiscard]] RunFacts facts_of(const RunStory& story, const Json& config, const std::string& data);
// UsageError if `folder` is not a run folder. Missing or damaged files leave their part empty.
[[nodiscard]] RunFacts read_facts(const std::filesystem::path& folder);

}  // namespace millrace::runs
