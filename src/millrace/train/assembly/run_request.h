// A request for a run: made by `millrace train`, and by commands that start like a run (measurements, dry runs).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/config/schema.h"
#include "millrace/core/agreement.h"
#include "millrace/telemetry/console.h"
#include "millrace/train/recipe/entry.h"

namespace millrace {

// What a run does instead of training. A run writes files only if the value is `no`.
enum class DryRun : std::uint8_t {
  no,        // a normal training
  plan,      // prints the plan
  rehearsal  // prints the plan, and the results of one batch of each split: see rehearsal.h
};

struct RunRequest {
  const Entry* entry = nullptr;  // must not be null
  config::Resolved config;
  std::string preset;                     // "" = no preset
  std::vector<std::string> command_line;  // kept in the log; empty for a program that calls the library
  bool fresh = false;                     // start over in a folder that holds an older run; see RunFolder
  Agreement* agreement = nullptr;         // connects the run's processes; null = one process
  std::function<void(const std::filesystem::path&)> folder_begun = nullptr;  // called when the run is about to write into its
                                                                             // folder
  bool verbose = false;                                                      // the plan shows lists in full instead of their
                                                                             // sizes
  DryRun dry_run = DryRun::no;                                               // what to do instead of training
  telemetry::Console* console = nullptr;                                     // must not be null
  Fs* fs = nullptr;                                                          // null = Fs::real()
};

}  // namespace millrace
