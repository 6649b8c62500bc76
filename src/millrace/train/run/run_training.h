// A training of a recipe from a resolved config.
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

// The whole schema of a recipe's run: shared sections and its own.
[[nodiscard]] config::Schema schema_of(const Entry& entry);
// The words that all recipes share, but for those that the recipe has as its own; then its own.
[[nodiscard]] std::vector<config::Alias> aliases_of(const Entry& entry);

// What a command that only looks does: nothing is written by any of these.
enum class Looks : std::uint8_t {
  no,        // it trains
  plan,      // prints the plan
  rehearsal  // prints the plan, and what came of one batch of each split: see rehearsal.h
};

struct RunRequest {
  const Entry* entry = nullptr;
  config::Resolved config;
  std::string preset;                     // "" = none
  std::vector<std::string> command_line;  // kept in the log
  bool fresh = false;                     // start over in a folder that holds a run; see RunFolder
  Agreement* agreement = nullptr;         // of the run's processes; null = one
  std::function<void(const std::filesystem::path&)> folder_begun = nullptr;  // told once the run is about to write there
  Looks looks = Looks::no;                                                   // instead of training
  telemetry::Console* console = nullptr;                                     // required
  Fs* fs = nullptr;                                                          // null = Fs::real()
};

struct RunOutcome {
  Json summary;  // as written to summary.json
  std::filesystem::path run_folder;
  int exit_code = 0;  // 0, or 128 + n after signal n
};

// Trains until done, stopped or failed. Throws Error; an error after the first step has saved a snapshot when the state is good.
RunOutcome run_training(const RunRequest& request);

}  // namespace millrace
