// Prepares and evaluates runs from a resolved config: used by `millrace train`, predict, eval, generate and measurements.
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

// The problems of a config whose values are valid one by one but contradict each other. Includes the recipe's own checks.
[[nodiscard]] std::vector<Problem> run_problems(const Entry& entry, const config::Resolved& config);

// Supplies a run's input if its config names no input: the preset then makes sample data, once, in runs/data. Commands that
// write nothing pass keeps = false: they use existing sample data, or make sample data in a temporary folder that the destructor
// removes.
class SampleInput {
 public:
  // Writes data.dir into the request's config if the recipe needs data and the config names none. Throws ConfigError if no preset
  // can make the data.
  SampleInput(RunRequest& request, bool keeps);
  ~SampleInput();
  SampleInput(const SampleInput&) = delete;
  SampleInput& operator=(const SampleInput&) = delete;

 private:
  std::filesystem::path temporary_;  // the temporary folder; "" = there is none
};

enum class EvaluatedSplit : std::uint8_t { validation, test };
struct Evaluation {
  metrics::Means metrics;         // losses as "val_<objective>", or "test_<objective>"
  std::vector<Picture> pictures;  // the recipe's pictures, and a matrix for each confusion table
};
// Evaluates a loaded model over the validation or test data of its recipe. The command's flags may name other data than the
// run's. `draws`: also draws pictures. Throws UsageError if the recipe has no such data.
Evaluation evaluate(Loaded& loaded, telemetry::Console& console, EvaluatedSplit split = EvaluatedSplit::validation,
                    bool draws = false);

}  // namespace millrace
