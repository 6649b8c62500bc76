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

namespace millrace {

// The whole schema of a recipe's run: shared sections and its own.
[[nodiscard]] config::Schema schema_of(const Entry& entry);
// The words that all recipes share, but for those that the recipe has as its own; then its own.
[[nodiscard]] std::vector<config::Alias> aliases_of(const Entry& entry);

// Problems of a config in which every value by itself is legal: values that do not fit each other, the recipe's own among them.
[[nodiscard]] std::vector<Problem> run_problems(const Entry& entry, const config::Resolved& config);

struct RunOutcome {
  Json summary;  // as written to summary.json
  std::filesystem::path run_folder;
  int exit_code = 0;  // 0, or 128 + n after signal n
};

// Trains until done, stopped or failed. Throws Error; an error after the first step has saved a snapshot when the state is good.
RunOutcome run_training(RunRequest request);

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

// A trained model, ready to be used on new data.
struct Loaded {
  config::Resolved config;
  std::unique_ptr<device::SharedCores> shared_cores;
  std::unique_ptr<RunConfig> shared;  // the sections that all recipes share; the recipe refers to it, and to the switches
  std::unique_ptr<Switches> switches;
  std::unique_ptr<Recipe> recipe;          // weights loaded, eval mode, in the run's layout
  at::Device device = at::kCPU;            // the model's
  std::optional<at::ScalarType> autocast;  // the run's number format; nullopt = fp32
  std::filesystem::path snapshot;          // or the file of weights
  std::string which;                       // one line: "best snapshot of RUN, step 600 (val_loss 1.71)"
};

// `from` is a run folder (best snapshot if there is one, else the newest valid), a snapshot folder, or a .safetensors or .pt file
// (then `config` must be given). Values in `overrides` replace those of the run's config (device, data.dir, generate.*).
Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console);

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
