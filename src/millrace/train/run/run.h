// Running a recipe from a resolved config: what `millrace train` calls, and what predict, eval, generate and measurements start
// from.
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

// Problems of a config in which every value by itself is legal: values that do not fit each other, the recipe's own among them.
[[nodiscard]] std::vector<Problem> run_problems(const Entry& entry, const config::Resolved& config);

// The input of a run whose config names none: a preset makes its own in runs/data, once. With `keeps` false, for commands that
// only look: sample data that is there is used, other is made in a temporary folder and removed with this object.
class SampleInput {
 public:
  // Writes data.dir into the request's config, where the entry needs it. ConfigError when there is no input and no preset to make
  // it.
  SampleInput(RunRequest& request, bool keeps);
  ~SampleInput();
  SampleInput(const SampleInput&) = delete;
  SampleInput& operator=(const SampleInput&) = delete;

 private:
  std::filesystem::path temporary_;  // "" = none
};

enum class EvaluatedSplit : std::uint8_t { validation, test };
struct Evaluation {
  metrics::Means metrics;         // losses as "val_<objective>", or "test_<objective>"
  std::vector<Picture> pictures;  // the recipe's, and a matrix for each table of counts
};
// A loaded model over the validation data of its recipe, or its test data; flags of the command may have pointed it at other
// data. UsageError where the recipe has none. Pictures are drawn where `draws` says so.
Evaluation evaluate(Loaded& loaded, telemetry::Console& console, EvaluatedSplit split = EvaluatedSplit::validation,
                    bool draws = false);

}  // namespace millrace
