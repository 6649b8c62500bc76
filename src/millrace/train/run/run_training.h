// Trains a recipe from a resolved config.
#pragma once

#include <filesystem>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/train/assembly/run_request.h"
#include "millrace/train/recipe/entry.h"

namespace millrace {

// The whole schema of a recipe's run: the shared sections and the recipe's own.
[[nodiscard]] config::Schema schema_of(const Entry& entry);
// Other names of a recipe's keys: the names that all recipes share, then the recipe's own. A shared name is left out if the
// recipe itself defines it.
[[nodiscard]] std::vector<config::Alias> aliases_of(const Entry& entry);

struct RunOutcome {
  Json summary;  // as written to summary.json
  std::filesystem::path run_folder;
  int exit_code = 0;  // 0, or 128 + n if signal n stopped the run
};

// Trains until the run is done, stopped or failed. Throws Error. If an error occurs after the first step and the state is
// complete, a snapshot is saved before the error is thrown.
RunOutcome run_training(RunRequest request);

}  // namespace millrace
