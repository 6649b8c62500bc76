// What a run is made from: what `millrace train` asks for, and all that begins as a run does (measurements, looks).
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

// What a command that only looks does: nothing is written by any of these.
enum class DryRun : std::uint8_t {
  no,        // it trains
  plan,      // prints the plan
  rehearsal  // prints the plan, and what came of one batch of each split: see rehearsal.h
};

struct RunRequest {
  const Entry* entry = nullptr;  // required
  config::Resolved config;
  std::string preset;                     // "" = none
  std::vector<std::string> command_line;  // kept in the log; empty for a program of its own
  bool fresh = false;                     // start over in a folder that holds a run; see RunFolder
  Agreement* agreement = nullptr;         // of the run's processes; null = one
  std::function<void(const std::filesystem::path&)> folder_begun = nullptr;  // told once the run is about to write there
  DryRun dry_run = DryRun::no;                                               // instead of training
  telemetry::Console* console = nullptr;                                     // required
  Fs* fs = nullptr;                                                          // null = Fs::real()
};

}  // namespace millrace
