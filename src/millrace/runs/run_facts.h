// The facts by which two runs are compared, read from their files.
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
    std::string value, origin;  // origin: where the value of a config key comes from, or the reason for a choice
    bool operator==(const Setting&) const = default;
  };

  // A logged value with its step and time. The value is NaN if the log says that it was not finite.
  struct Moment {
    double step = 0;
    double seconds = 0;  // total seconds that the run's processes had run when the value was logged
    double value = 0;
    std::int64_t version = 1;  // see metrics::Means::MetricVersion
  };

  std::string folder, recipe, preset, state;
  bool is_script = false;                  // see RunStory
  std::map<std::string, Setting> config;   // values by dotted key
  std::map<std::string, Setting> plan;     // choices of the plan, without facts about the machine
  std::map<std::string, Setting> machine;  // device and versions
  std::string data;                        // fingerprint of the data in the newest snapshot; "" = unknown
  // The following members describe the last process, unless their comments say otherwise.
  std::map<std::string, double> accounts;  // seconds by account; empty: a run of an older version
  double steps = 0;
  double samples_per_step = 0;  // mean over the whole run; 0 = unknown
  std::optional<double> step_ms;
  std::vector<double> line_ms;   // the median time of a step in each log line; the first line is left out, because it contains
                                 // the warm-up
  std::optional<double> others;  // share of the time in which other programs used the cores
  std::map<std::string, double> memory;                // the parts of the peak of memory, in bytes
  std::map<std::string, std::vector<Moment>> quality;  // losses and metrics of the whole run by name, in the order of steps
  Json findings;                                       // an array; null: the doctor was off
};

// `config`: the content of config.json, which may be any JSON. `data`: the fingerprint of the data. Both may be incomplete.
[[nodiscard]] RunFacts facts_of(const RunStory& story, const Json& config, const std::string& data);
// Reads a run folder. Throws UsageError if `folder` is not a run folder. A missing or damaged file leaves its members empty.
[[nodiscard]] RunFacts read_facts(const std::filesystem::path& folder);

}  // namespace millrace::runs
