// Runs a recipe from a resolved config: called by `millrace train`, and the start of predict, eval, generate and measurements.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/config/schema.h"
#include "millrace/metrics/means.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/train/assembly/assembly.h"
#include "millrace/train/assembly/run_request.h"
#include "millrace/train/recipe/entry.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/loaded.h"
#include "millrace/train/run/run_training.h"

namespace millrace {

// Problems of a config whose values are all valid one by one, but contradict each other; includes the recipe's own checks.
[[nodiscard]] std::vector<Problem> run_problems(const Entry& entry, const config::Resolved& config);

// The input of a run whose config names no input: a preset makes its own in runs/data, once. With `keeps` false, for commands
// that write nothing, existing sample data is used; without it, sample data is made in a temporary folder that this object
// removes.
class SampleInput {
 public:
  // Writes data.dir into the request's config, if the entry needs it. ConfigError if there is neither input nor a preset to make
  // it.
  SampleInput(RunRequest& request, bool keeps);
  ~SampleInput();
  SampleInput(const SampleInput&) = delete;
  SampleInput& operator=(const SampleInput&) = delete;

 private:
  std::filesystem::path temporary_;  // "" = no temporary folder
};

enum class EvaluatedSplit : std::uint8_t { validation, test };
struct Evaluation {
  metrics::Means metrics;         // losses as "val_<objective>", or "test_<objective>"
  std::vector<Picture> pictures;  // the recipe's, and a matrix for each table of counts
};
// Evaluates a loaded model over the validation or test data of its recipe; flags of the command may have set other data. Draws
// pictures if `draws`. UsageError if the recipe has no such data.
Evaluation evaluate(Loaded& loaded, telemetry::Console& console, EvaluatedSplit split = EvaluatedSplit::validation,
                    bool draws = false);

}  // namespace millrace
